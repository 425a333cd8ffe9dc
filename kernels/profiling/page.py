"""Reads the page `raw` that ncu writes as CSV: a line of names, one of units, and one for each GPU kernel.

A foreign kernel may have written between the lines: what is not such a page is left out, and raises nothing.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator

from kernels.contract.profile import MOST_LAUNCHES, Launch
from kernels.contract.replies import printable
from kernels.profiling.metrics import figures

NAME, GRID, BLOCK = "Kernel Name", "Grid Size", "Block Size"
FIRST = "ID"
MOST_CELL = 1 << 20
MOST_NAME = 500
LARGEST = 1e30
"""No counter of a call is larger. What claims to be was not written by ncu."""
PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
TIMES, BYTES = ("second", "s"), ("byte", "bytes", "B")


def launches(text: str) -> list[Launch]:
    """The GPU kernels of a page, in their order; empty if it is none."""
    found: list[Launch] = []
    columns: list[str] = []
    units: list[str] = []
    for cells in _rows(text):
        if cells[0] == FIRST and NAME in cells:
            columns, units = cells, []
        elif columns and len(cells) == len(columns):
            if not cells[0] and not units:
                units = cells
            elif cells[0].isdecimal() and len(found) < MOST_LAUNCHES:
                found.append(_launch(columns, units or [""] * len(columns), cells))
    return found


def _rows(text: str) -> Iterator[list[str]]:
    """The rows of CSV among its lines. Each is read alone: a damaged one spoils no other."""
    for line in text.splitlines():
        if line.startswith('"') and len(line) <= MOST_CELL:
            try:
                yield from (row for row in csv.reader([line]) if row)
            except csv.Error:
                continue


def _launch(columns: list[str], units: list[str], cells: list[str]) -> Launch:
    named = dict(zip(columns, cells, strict=True))
    values = {}
    for name, unit, cell in zip(columns, units, cells, strict=True):
        if "__" in name and (value := number(cell, unit)) is not None:
            values[name] = value
    return Launch(
        name=printable(named[NAME])[:MOST_NAME],
        grid=_sizes(named.get(GRID, "")),
        block=_sizes(named.get(BLOCK, "")),
        **figures(values),
    )


def _sizes(cell: str) -> str:
    """ "(128, 16, 1)" as "128 x 16 x 1"; empty if it is something else."""
    parts = [part.strip() for part in cell.strip("() ").split(",")]
    return " x ".join(parts) if all(part.isdecimal() and len(part) < 12 for part in parts) else ""


def number(cell: str, unit: str) -> float | None:
    """A value in its base unit: ns of a time, bytes, percent. None if it is none: "n/a", "nan"."""
    try:
        value = float(cell.replace(",", "").strip()) * factor(unit)
    except ValueError:
        return None
    return value if math.isfinite(value) and abs(value) < LARGEST else None


def factor(unit: str) -> float:
    """What a unit counts, in ns or bytes; 1 for others: "%", "register/thread", "cycle"."""
    unit = unit.partition("/")[0].strip()
    for base, scale in ((TIMES, 1e9), (BYTES, 1.0)):
        for name in base:
            if unit.endswith(name) and (prefix := unit[: -len(name)]) in PREFIXES:
                return PREFIXES[prefix] * scale
    return 1.0
