"""Charts of several runs side by side: speedup, latency and throughput of each kernel on each workload, a mark for each run.

A speedup is over the baseline of its own run, so cards stand beside each other, and no word compares them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from kernels.report.tables import Row
from runs.charts.run_charts import drawn
from runs.charts.scales import log_ticks, placed, ratio_ticks, reach
from runs.charts.theme import FONT, SERIES, THEMES, in_pixels
from runs.templatetags.figures import short

WIDTHS = (1160, 330)
"""Whole widths in pixels: (wide page, narrow page)."""
LEFT, RIGHT, BOTTOM = (250, 10), 14, 30
KEY, HEAD, MARK, GAP, LABEL = 17, 24, 11, 8, 15
"""Heights of a line of the key, of a kernel's name, of a mark, the room between workloads, and the height of a workload's name,
which stands above its marks on a phone."""
TITLE = 30
"""Height of a title."""
MOST_LINES = 28
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left", "triangle-right")
TITLES = {"speedup": "Speedup over the baseline of each run", "latency": "Latency, µs", "throughput": "Throughput"}


class Mark(NamedTuple):
    value: float
    low: float | None
    high: float | None


class Line(NamedTuple):
    """One kernel on one workload: a mark for each run, None where it has none."""

    kernel: str
    workload: str
    marks: list[Mark | None]


class Picture(NamedTuple):
    """A chart of one measure of one operation."""

    name: str
    operation: str
    title: str
    lines: list[Line]
    runs: int

    @property
    def workloads(self) -> list[str]:
        return list(dict.fromkeys(line.workload for line in self.lines))

    @property
    def drawn(self) -> list[str]:
        """The workloads that are drawn, the same for every kernel: of many those that most runs have; of equal ones some,
        from the first to the last."""
        most = max(1, MOST_LINES // len({line.kernel for line in self.lines}))
        by_runs: dict[int, list[str]] = {}
        for workload in self.workloads:
            by_runs.setdefault(self._runs_on(workload), []).append(workload)
        chosen: list[str] = []
        for _, some in sorted(by_runs.items(), reverse=True):
            chosen += _spread(some, most - len(chosen))
        return [workload for workload in self.workloads if workload in chosen]

    def _runs_on(self, workload: str) -> int:
        """How many runs have a mark on it, of the kernel that most runs have."""
        return max(sum(mark is not None for mark in line.marks) for line in self.lines if line.workload == workload)

    @property
    def shown(self) -> list[Line]:
        wanted = set(self.drawn)
        return [line for line in self.lines if line.workload in wanted][:MOST_LINES]

    def extent(self, narrow: bool) -> int:
        """Height of a workload."""
        return MARK * self.runs + GAP + LABEL * narrow

    def _height(self, narrow: bool) -> int:
        heads = HEAD * len({line.kernel for line in self.shown})
        return KEY * self.runs + heads + len(self.shown) * self.extent(narrow) + BOTTOM

    @property
    def heights(self) -> tuple[int, int]:
        """On a wide page, and on a phone."""
        return self._height(False), self._height(True)


def _spread(known: Sequence[str], most: int) -> list[str]:
    """So many of them at most, from the first to the last."""
    count = min(len(known), most)
    return [known[round(n * (len(known) - 1) / max(1, count - 1))] for n in range(count)]


def pictures(tables: Sequence[Sequence[Row]]) -> list[Picture]:
    """The charts that the tables of these runs have, operation by operation."""
    operations = dict.fromkeys(row.operation for table in tables for row in table)
    found = []
    for operation in operations:
        for name, title in TITLES.items():
            rows = [[row for row in drawn(table) if row.operation == operation] for table in tables]
            if lines := _lines(rows, name):
                unit = next(row.unit for table in rows for row in table)
                more = f", {unit}" if name == "throughput" else ""
                found.append(Picture(name, operation, f"{title}{more}", lines, len(tables)))
    return found


def _lines(tables: Sequence[Sequence[Row]], name: str) -> list[Line]:
    marks: dict[str, dict[tuple[str, str], list[Mark | None]]] = {}
    labels: dict[tuple[str, str], str] = {}
    for number, table in enumerate(tables):
        for row in table:
            if mark := _mark(row, name):
                place = (row.workload_key, row.mode)
                labels.setdefault(place, f"{short(row.workload)} {row.mode}")
                empty: list[Mark | None] = [None] * len(tables)
                marks.setdefault(row.kernel, {}).setdefault(place, empty)[number] = mark
    return [Line(kernel, labels[place], mine) for kernel, places in marks.items() for place, mine in places.items()]


def _mark(row: Row, name: str) -> Mark | None:
    if name == "speedup":
        is_one = row.speedup and row.speedup_low and row.speedup_high and row.kernel != row.baseline
        return Mark(row.speedup, row.speedup_low, row.speedup_high) if is_one and row.speedup else None
    if name == "latency":
        low, high = (end and 1e3 * end for end in (row.p50_low_ms, row.p50_high_ms))
        return Mark(1e3 * row.p50_ms, low, high) if row.p50_ms else None
    rate = row.tflops if row.unit.startswith("TFLOP") else row.gb_per_s
    return Mark(rate, None, None) if rate else None


def draw(picture: Picture, names: Sequence[str], palette: str, narrow: bool = False, title: str = "") -> Any:
    """names: of the runs, for the key. title: of a picture that has no page around it."""
    colours, left, whole = THEMES[palette], LEFT[narrow], WIDTHS[narrow]
    width, height = whole - left - RIGHT, picture.heights[narrow] - BOTTOM
    data, heads, labels = _placed(picture, names, narrow)
    low, high = data.low.min(), data.high.max()
    if picture.name == "speedup":
        low, high = min(0.9, low) / 1.05, max(1.1, high) * 1.05
        ticks = ratio_ticks(low, high, width // 60)
        axis = alt.Axis(values=ticks, labelExpr="datum.value + 'x'", title=None)
    else:
        low, high = reach(low, high)
        axis = alt.Axis(values=log_ticks(low, high, width // 60), format="~s", title=None)
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    series = list(names)
    colour = alt.Color("run:N", legend=None, sort=series, scale=alt.Scale(domain=series, range=list(SERIES[palette])))
    shape = alt.Shape("run:N", legend=None, sort=series, scale=alt.Scale(domain=series, range=list(SHAPES)))

    def x(field: str) -> Any:
        return alt.X(field, scale=scale, axis=axis)

    y = placed(alt.Y, "y:Q", height)
    base = alt.Chart(data).encode(y=y, color=colour)
    figure = ".4g"
    tooltip = [
        "kernel:N", "workload:N", "run:N", alt.Tooltip("value:Q", format=figure, title=picture.title),
        alt.Tooltip("low:Q", format=figure), alt.Tooltip("high:Q", format=figure),
    ]  # fmt: skip
    layers = [
        base.mark_rule(strokeWidth=4, opacity=0.4, aria=False).encode(x=x("low:Q"), x2="high:Q"),
        base.mark_point(filled=True, size=46, opacity=1).encode(x=x("value:Q"), shape=shape, tooltip=tooltip),
        _text(heads, y, -left, "start", left + width, fontWeight=600),
        _text(labels, y, -left, "start", (whole if narrow else left) - 10, color=colours["quiet"]),
    ]
    if picture.name == "speedup":
        one = alt.Chart(pd.DataFrame({"one": [1.0], "y": [KEY * picture.runs], "end": [height]}))
        layers.insert(0, one.mark_rule(color=colours["other"], aria=False).encode(x=x("one:Q"), y=y, y2="end:Q"))
    key = pd.DataFrame({"y": [KEY * (n + 0.5) for n in range(picture.runs)], "text": series, "run": series})
    layers += [
        alt.Chart(key).mark_point(filled=True, size=60, opacity=1, aria=False).encode(
            y=y, x=alt.XValue(6 - left), color=colour, shape=shape
        ),
        _text(key, y, 18 - left, "start", whole - 24),
    ]  # fmt: skip
    room = {"left": left, "top": TITLE if title else 0, "right": RIGHT, "bottom": BOTTOM}
    drawn = in_pixels(alt.layer(*layers), width, height, room, colours)
    if title:
        above = {"anchor": "start", "frame": "bounds", "offset": TITLE / 2 - 4, "fontSize": 13}
        drawn.title = alt.TitleParams(title, **above, font=FONT, color=colours["ink"])
    return drawn


def _text(data: pd.DataFrame, y: Any, at: float, align: str, limit: float, **mark: Any) -> Any:
    own = {"align": "left" if align == "start" else align, "baseline": "middle", "limit": limit, "clip": False}
    return alt.Chart(data).mark_text(**own, **mark, aria=False).encode(y=y, x=alt.XValue(at), text="text:N")


def _placed(picture: Picture, names: Sequence[str], narrow: bool) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """(marks, kernels' names, workloads' names), each with its height."""
    y, kernel = float(KEY * picture.runs), ""
    marks, heads, labels = [], [], []
    for line in picture.shown:
        if line.kernel != kernel:
            kernel = line.kernel
            heads.append({"y": y + HEAD / 2 + 2, "text": kernel})
            y += HEAD
        extent, above = picture.extent(narrow), LABEL * narrow
        labels.append({"y": y + (above / 2 if narrow else extent / 2), "text": line.workload})
        for number, mark in enumerate(line.marks):
            if mark is not None:
                ends = {"low": mark.low or mark.value, "high": mark.high or mark.value, "value": mark.value}
                place = {"y": y + above + GAP / 2 + MARK * (number + 0.5), "run": names[number]}
                marks.append(ends | place | {"kernel": line.kernel, "workload": line.workload})
        y += extent
    assert math.isclose(y + BOTTOM, picture.heights[narrow])
    return pd.DataFrame(marks), pd.DataFrame(heads), pd.DataFrame(labels)
