"""Tables of cells as Markdown, text and .csv, and what stands in a cell."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernels.contract.arm_result import Ratio

LEFT_COLUMNS = 3
"""Text columns of a table: aligned left, never left out."""
LOPSIDED = 0.05
"""Sides of an interval above this are compared with each other."""
WIDE = 0.25
"""An interval with a side above this is written as its ends."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Signs that begin a formula in a spreadsheet."""


def three_digits(value: float | None) -> str:
    """Three significant digits (9.90, 50.0, 321, 14800); an exponent only for very small or large values."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e9:
        return f"{value:.2e}"
    rounded = float(f"{value:.2e}")
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.{decimals}f}"


def plus_minus(interval: Ratio, said: Callable[[float], str] | None = None) -> str:
    """The larger side of an interval, of its value: "±0.3%"; both ends where it is wide or the sides differ: "0.40 to 1.20".
    said: writes an end; without it three digits."""
    if interval.low <= 0 or interval.ratio <= 0:
        return " to ".join(map(said or three_digits, interval[1:]))
    above, below = interval.high / interval.ratio - 1, interval.ratio / interval.low - 1
    side = max(above, below)
    if side > WIDE or (side > LOPSIDED and side > 1.5 * min(above, below)):
        return " to ".join(map(said or three_digits, interval[1:]))
    return f"\N{PLUS-MINUS SIGN}{side:.1%}" if side < 0.0995 else f"\N{PLUS-MINUS SIGN}{side:.0%}"


def microseconds(ms: float | None) -> str:
    return "" if ms is None else three_digits(ms * 1e3)


def listed(names: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def escaped(text: str, signs: str = "[]*_`<>|\\") -> str:
    """A person's text in Markdown, where it is no link, no markup and no HTML."""
    return "".join(f"\\{sign}" if sign in signs else sign for sign in text)


def markdown(lines: list[list[str]], heading: str = "", below: str = "") -> str:
    """A table of cells; the first line holds the headings. LEFT_COLUMNS columns are aligned left, figures right."""
    first, *rest = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    under = [" --- " if number < LEFT_COLUMNS else " ---: " for number in range(len(first))]
    drawn = [f"| {' | '.join(first)} |", f"|{'|'.join(under)}|", *(f"| {' | '.join(line)} |" for line in rest)]
    above = [" ".join(heading.split()), ""] if heading else []
    return "\n".join([*above, *drawn, *(["", below] if below else [])]) + "\n"


def text(cells: list[list[str]], whys: list[str], below: str = "") -> str:
    """The same for a terminal. whys: text below each line except the first."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for number, line in enumerate(cells):
        padded = [
            c.ljust(w) if i < LEFT_COLUMNS else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
        if number and (why := whys[number - 1]):
            lines.append(f"    {why.splitlines()[0][:160]}")
    return "\n".join([*lines, *filter(None, [below])])


def as_csv(records: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Writes .csv: a line of headings, then one line per record. A spreadsheet computes none of its texts."""
    return "".join(csv_lines(records, columns))


def csv_lines(records: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """The lines of a .csv, each as it is made."""
    line = io.StringIO()
    writer = csv.DictWriter(line, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in records:
        yield line.getvalue()
        line.seek(line.truncate(0))
        writer.writerow({name: _not_computed(value) for name, value in record.items()})
    yield line.getvalue()


def _not_computed(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula, behind an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
