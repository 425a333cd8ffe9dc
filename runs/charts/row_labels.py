"""Labels of the rows of a chart: what tells its workloads apart, in at most two lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kernels.report.tables import words_of

LINES = 2
SMALL, LARGE = " .,:;'|()[]ijlfrtI/-", "=+MWmw%@~<>"
SMALL_LETTER, LETTER, LARGE_LETTER = 4.2, 7.2, 10.0
"""Widths of a chart's letters in pixels: of SMALL ones, of others, of LARGE ones."""
OFF = 6
"""Pixels between the line of the speed of light and a text beside it, at least."""
PART = re.compile(r"\d\S*(?: (?:x|blocks of) \S+)+|\S+")
"""A size of a label. "4096 x 768" and "16 blocks of 64" are one."""


class Place(NamedTuple):
    """A row of a chart: the label of its workload, and how that was timed."""

    workload: str
    mode: str


class Labels(NamedTuple):
    """rows: the lines of each label. shared: what all rows have and none says."""

    rows: list[list[str]]
    shared: str


def text_width(text: str) -> float:
    """Pixels that a chart's text takes, about."""
    small, large = (sum(letter in kind for letter in text) for kind in (SMALL, LARGE))
    return SMALL_LETTER * small + LARGE_LETTER * large + LETTER * (len(text) - small - large)


def off_light(share: float, text: str, width: float, beside: float) -> float:
    """How far behind its mark a number begins, in pixels: `beside`, but behind the line of the speed of light if it would touch
    that. The axis has shares, and this width."""
    begin, line = share * width + beside, width
    touches = begin - OFF < line < begin + text_width(text) + OFF
    return line + OFF - share * width if touches else beside


def in_lines(parts: Iterable[str], width: float) -> list[str]:
    """Text in lines of at most this width; a part that is wider has a line of its own."""
    lines: list[str] = []
    for part in parts:
        if lines and text_width(f"{lines[-1]} {part}") <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return lines


def labels_of(places: Sequence[Place], width: float) -> Labels:
    """The labels of rows in a column of this width: of what varies, all that fits; at least what tells the rows apart. A row
    alone has its sizes."""
    if len(places) == 1:
        return Labels([_last_joined(in_lines(words_of(places[0].workload)[2:], width))], "")
    repeated = len({place.workload for place in places}) < len(places)
    rows = [_parts(place) | ({"mode": place.mode} if repeated else {}) for place in places]
    names = _in_order(rows)
    varying = [name for name in names if len({row.get(name) for row in rows}) > 1]
    told = _telling(rows, varying)
    while any(not _said(row, told) for row in rows) and (more := _always(rows, names, told)):
        told = [name for name in names if name in (*told, more)]
    for name in varying:
        wider = [one for one in names if one in (*told, name)]
        if all(_fits(_said(row, wider), width) for row in rows):
            told = wider
    lines = [_last_joined(in_lines(_said(row, told), width)) for row in rows]
    return Labels(lines, " ".join(_shared(places, rows, [*varying, *told])))


def column(places: Sequence[Place], least: int, most: int) -> int:
    """The width of a column in which no label is cut off, at least and at most so many pixels."""
    for width in range(least, most, 4):
        if all(_fits(lines, width) for lines in labels_of(places, width).rows):
            return width
    return most


def _parts(place: Place) -> dict[str, str]:
    """Name of a size -> its text, "B" -> "B=16", for all that the label says behind the operation."""
    dtype, *rest = PART.findall(place.workload.partition(" ")[2]) or [""]
    found = {"dtype": dtype}
    for part in rest:
        name = "sizes" if part[0].isdigit() and " " in part and "sizes" not in found else part.partition("=")[0]
        found[name] = part
    return found


def _in_order(rows: Sequence[dict[str, str]]) -> list[str]:
    """All names, in an order in which each row has its own."""
    names: list[str] = []
    for row in rows:
        at = 0
        for name in row:
            if name in names:
                at = names.index(name) + 1
            else:
                names.insert(at, name)
                at += 1
    return names


def _telling(rows: Sequence[dict[str, str]], varying: Sequence[str]) -> list[str]:
    """As few names as tell the rows apart as far as all do."""
    told: list[str] = []
    while _count(rows, told) < _count(rows, varying):
        told.append(max((name for name in varying if name not in told), key=lambda name: _count(rows, [*told, name])))
    return [name for name in varying if name in told]


def _count(rows: Sequence[dict[str, str]], names: Sequence[str]) -> int:
    """How many labels differ that say these names."""
    return len({tuple(row.get(name) for name in names) for row in rows})


def _always(rows: Sequence[dict[str, str]], names: Sequence[str], told: Sequence[str]) -> str:
    """The first size that every row has and that is not told yet; empty without one."""
    return next((name for name in names[1:] if name not in told and all(row.get(name) for row in rows)), "")


def _shared(places: Sequence[Place], rows: Sequence[dict[str, str]], but: Sequence[str]) -> list[str]:
    """What all rows have, but these names and a problem's own, which the page says above."""
    if not rows:
        return []
    words = " ".join(words_of(places[0].workload))
    return [part for name, part in rows[0].items() if name not in (*but, "mode") and part in words]


def _said(row: dict[str, str], names: Sequence[str]) -> list[str]:
    return [row[name] for name in names if row.get(name)]


def _fits(parts: Sequence[str], width: float) -> bool:
    lines = in_lines(parts, width)
    return len(lines) <= LINES and all(text_width(line) <= width for line in lines)


def _last_joined(lines: list[str]) -> list[str]:
    """The lines that a row has room for, the rest on the last one, which the chart cuts off."""
    return [*lines[: LINES - 1], " ".join(lines[LINES - 1 :])] if len(lines) > LINES else lines
