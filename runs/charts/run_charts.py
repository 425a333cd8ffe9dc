"""Charts of a run: the leading kernel's speedup, and the distance to the speed of light.

Altair makes Vega-Lite specs; vl-convert makes the same SVG for pages without scripts. One per theme: dark charts are
redrawn, not inverted. One per width: text keeps its size on phones. Rows are placed by pixel and the whole size is known
before a chart is drawn, so that a page reserves it. A run of many workloads has a row for each kernel instead of one for
each workload (run_strips.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from kernels.analysis.standing import ranking
from kernels.contract.arm_result import COUNT_NOWHERE
from kernels.report import tables
from kernels.report.tables import Row
from runs.charts.row_labels import OFF, Labels, Place, column, labels_of, off_light, text_width
from runs.charts.run_strips import MOST_KERNELS, latency_strip, speedup_strip
from runs.charts.scales import log_ticks, placed, ratio_ticks, reach
from runs.charts.theme import in_pixels, written
from runs.models import Run
from runs.queries import measurements
from runs.queries.outcomes import first_kernel
from runs.templatetags.figures import timespan

NARROW, OF = "-narrow", "__"
NAMES = ("speedup", "latency", f"speedup{NARROW}", f"latency{NARROW}")
WIDTHS = {"speedup": (648, 326), "latency": (434, 326)}
"""Whole widths in pixels: (wide page, narrow page). A wide chart fits its column at 1440."""
LABELS, WIDER = {"speedup": (210, 116), "latency": (116, 116)}, 44
"""Widths of the workloads' column, and by how much it grows for labels that would be cut off."""
TOP, ROW, BOTTOM, RIGHT = 26, 30, 28, 46
"""Heights above, of and below the rows, and the least room for a number beside the last mark."""
LINE = 13
"""Height of a line of a label."""
HEAD = 96
"""Room for the name of the speed of light above its line."""
BESIDE, APART = 11, 8
"""Pixels between a mark and its number, and between two names."""
MOST_ROWS = 30
"""Workloads that have a row each; of more, kernels have."""
FIGURE = 52
"""Room for a number beside its mark."""
LONGEST = 120
"""The most room that a name gets, in pixels."""
WORDS = ("FASTER", "SLOWER", "SAME", "UNDECIDED", "unpaired", "needs more rounds")


class Size(NamedTuple):
    width: int
    height: int


def rows_of(run: Run, operation: str = "") -> list[Row]:
    """The run's table, or one operation's part of it."""
    return tables.rows(m for m in measurements.of_run(run) if operation in ("", m.workload.operation))


def drawn(table: Iterable[Row]) -> list[Row]:
    """The rows whose times count. An impossible or suspect row, or one that counts nowhere, keeps its time in
    the table, not in charts."""
    return [row for row in table if row.status == "ok" and row.verdict not in COUNT_NOWHERE]


# --- what is drawn of a table -----------------------------------------------------------------------------------------


def leader_of(table: Sequence[Row]) -> str:
    """The kernel of the page's headline, and of the list of runs; empty if none was compared."""
    first = first_kernel(ranking(tables.compared(drawn(table))))
    return first.kernel if first else ""


def places(table: Sequence[Row]) -> dict[tuple[str, str], dict[str, Row]]:
    """Workload and mode -> kernel -> its row, of those that have a time."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in drawn(table):
        if row.p50_ms is not None:
            found.setdefault((row.workload_key, row.mode), {})[row.kernel] = row
    return found


def sizes_of(table: Sequence[Row]) -> dict[str, tuple[Size, Size]]:
    """Chart -> its size on a wide page, and on a phone."""
    workloads = len(places(table))
    counts = {"speedup": workloads, "latency": workloads}
    if workloads > MOST_ROWS:
        rows = drawn(table)
        limits = any(row.limit_share is not None for row in rows)
        timed = {row.kernel for row in rows if (row.limit_share if limits else row.p50_ms) is not None}
        counts = {"speedup": len({row.kernel for row in rows if row.speedup is not None}), "latency": len(timed)}
    heights = {name: TOP + ROW * min(count, max(MOST_ROWS, MOST_KERNELS)) + BOTTOM for name, count in counts.items()}
    return {
        name: (Size(WIDTHS[name][0], heights[name]), Size(WIDTHS[name][1], heights[name])) for name in heights
    }  # fmt: skip


def short_labels(table: Sequence[Row], width: float) -> Labels:
    """The labels of the workloads in a column of this width."""
    return labels_of(_labelled(table), width)


def _labelled(table: Sequence[Row]) -> list[Place]:
    return [Place(next(iter(mine.values())).workload, mode) for (_, mode), mine in places(table).items()]


class Canvas:
    """The rows of a chart: sizes, the channels of pixels, and the labels at the left."""

    def __init__(
        self, name: str, table: Sequence[Row], colours: dict[str, str], narrow: bool, right: int = RIGHT
    ) -> None:
        self.colours, least = colours, LABELS[name][narrow]
        self.left = column(_labelled(table), least - 4, least + WIDER) + 4
        self.labels = short_labels(table, self.left - 4)
        self.width = WIDTHS[name][narrow] - self.left - right
        self.height = ROW * len(self.labels.rows)
        self.room = {"left": self.left, "top": TOP, "right": right, "bottom": BOTTOM}

    def y(self, field: str) -> Any:
        return placed(alt.Y, field, self.height)

    def named(self) -> list[Any]:
        """The label of each row, and above them what all rows share."""
        rows = self.labels.rows
        begins = [self.middle(n) - LINE / 2 * (len(lines) - 1) for n, lines in enumerate(rows)]
        data = pd.DataFrame({"label": rows, "y": begins})
        layers = [self._text(data, self.left - 4, "ink")]
        if self.labels.shared:
            head = pd.DataFrame({"label": [f"all: {self.labels.shared}"], "y": [-TOP / 2]})
            layers.append(self._text(head, self.left + self.width - HEAD, "quiet"))
        return layers

    def _text(self, data: pd.DataFrame, limit: float, colour: str) -> Any:
        base = alt.Chart(data).encode(x=alt.XValue(-self.left), y=self.y("y:Q"), text="label:N")
        return base.mark_text(
            align="left", baseline="middle", limit=limit, lineHeight=LINE, color=self.colours[colour]
        )  # fmt: skip

    def middle(self, number: int) -> float:
        return ROW * (number + 0.5)

    def finish(self, layers: list[Any]) -> Any:
        return in_pixels(alt.layer(*layers, *self.named()), self.width, self.height, self.room, self.colours)


# --- speedup ----------------------------------------------------------------------------------------------------------


def speedup(table: Sequence[Row], colours: dict[str, str], narrow: bool = False) -> Any:
    """The leading kernel's speedup with its interval on each workload; the margin around 1 as a band."""
    leader = leader_of(table)
    if not leader:
        return None
    if len(places(table)) > MOST_ROWS:
        return speedup_strip(drawn(table), colours, WIDTHS["speedup"][narrow])
    canvas = Canvas("speedup", table, colours, narrow, _right_of(table, leader))
    data = _speedups(table, leader, canvas)
    low = min(0.95, data.low.min(), data.band_low.min())
    high = max(1.05, data.high.max(), data.band_high.max())
    scale = alt.Scale(type="log", domain=[low / 1.02, high * 1.02], nice=False)
    ticks = ratio_ticks(low, high, canvas.width // 52)
    axis = alt.Axis(values=ticks, labelExpr="datum.value + 'x'", title=None)

    def x(field: str) -> Any:
        return alt.X(field, scale=scale, axis=axis)

    span = {"y": canvas.y("top:Q"), "y2": alt.Y2("bottom:Q")}
    behind = alt.Chart(data[["workload", "margin", "band_low", "band_high", "one", "top", "bottom"]])
    band = behind.mark_rect(color=colours["band"], aria=False).encode(x=x("band_low:Q"), x2="band_high:Q", **span)
    one = behind.mark_rule(color=colours["quiet"], aria=False).encode(x=x("one:Q"), **span)
    is_left = math.log(1 / low) * 2 > math.log(high / low)
    said = data[data.speedup.notna()].copy()
    said["side"] = [_side(row.low, row.high, low, high, canvas.width) for row in said.itertuples()]
    return canvas.finish(
        [band, one, *_marks(said, x, canvas), *_missing(data[data.speedup.isna()], x, canvas, is_left)]
    )


def _right_of(table: Sequence[Row], leader: str) -> int:
    """The room at the right of the last mark for its number, in pixels."""
    texts = [_times(row.speedup) for row in drawn(table) if row.kernel == leader and row.speedup is not None]
    return max([RIGHT, *(BESIDE + math.ceil(text_width(text)) for text in texts)])


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def _speedups(table: Sequence[Row], leader: str, canvas: Canvas) -> pd.DataFrame:
    """One row for each workload, with what its leader measured there."""
    status = {(row.workload_key, row.mode): row.status for row in table if row.kernel == leader}
    rows = []
    for number, (key, mine) in enumerate(places(table).items()):
        row, any_row = mine.get(leader), next(iter(mine.values()))
        has = row is not None and row.speedup is not None
        margin = any_row.margin
        rows.append(
            {
                "workload": any_row.workload, "kernel": leader, "margin": margin, "one": 1.0,
                "band_low": 1 / (1 + margin), "band_high": 1 + margin,
                "y": canvas.middle(number), "top": ROW * number, "bottom": ROW * (number + 1),
                "speedup": row.speedup if row and has else math.nan,
                "low": row.speedup_low if row and has else math.nan,
                "high": row.speedup_high if row and has else math.nan,
                "word": str(row.verdict) if row and str(row.verdict) in WORDS else "UNDECIDED",
                "text": _times(row.speedup) if row and row.speedup is not None else str(status.get(key, "not measured")),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _side(low: float, high: float, first: float, last: float, width: float) -> str:
    """Where the number of a mark stands: at its right, unless it would cover the line at 1 and has room at its left."""
    pixel = width / math.log(last / first)
    covers = high < 1 < high * math.exp(FIGURE / pixel)
    return "left" if covers and math.log(low / first) * pixel > FIGURE else "right"


def _marks(data: pd.DataFrame, x: Any, canvas: Canvas) -> list[Any]:
    """Interval, point and number of each row."""
    colours = canvas.colours
    words = alt.Scale(domain=list(WORDS), range=[colours["faster"], colours["slower"], *[colours["other"]] * 4])
    colour = alt.Color("word:N", legend=None, scale=words)
    tooltip = [alt.Tooltip("workload:N"), alt.Tooltip("kernel:N"), alt.Tooltip("word:N", title="verdict")]
    for field, name in (("speedup", "speedup"), ("low", "from"), ("high", "to")):
        tooltip.append(alt.Tooltip(f"{field}:Q", format=".3f", title=name))
    columns = ["workload", "kernel", "word", "speedup", "low", "high", "text", "side", "y"]
    base = alt.Chart(data[columns]).encode(y=canvas.y("y:Q"))
    bar = base.mark_rule(strokeWidth=8, opacity=0.35, strokeCap="round", aria=False)
    point = base.mark_point(filled=True, size=64, opacity=1)
    right, left = base.transform_filter("datum.side == 'right'"), base.transform_filter("datum.side == 'left'")
    return [
        written(right.encode(x=x("high:Q"), text="text:N"), colours, align="left", baseline="middle", dx=BESIDE),
        written(left.encode(x=x("low:Q"), text="text:N"), colours, align="right", baseline="middle", dx=-BESIDE),
        bar.encode(x=x("low:Q"), x2="high:Q", color=colour),
        point.encode(x=x("speedup:Q"), color=colour, tooltip=tooltip),
    ]


def _missing(data: pd.DataFrame, x: Any, canvas: Canvas, is_left: bool) -> list[Any]:
    """Why the leader has no speedup on a workload, beside the line at 1: at its left if there is more room."""
    if data.empty:
        return []
    base = alt.Chart(data[["workload", "one", "text", "y"]]).encode(x=x("one:Q"), y=canvas.y("y:Q"), text="text:N")
    align, shift = ("right", -BESIDE) if is_left else ("left", BESIDE)
    return [base.mark_text(align=align, baseline="middle", dx=shift, color=canvas.colours["quiet"])]


# --- the distance to the speed of light, or times ----------------------------------------------------------------------


def latency(table: Sequence[Row], colours: dict[str, str], narrow: bool = False) -> Any:
    """The baseline and the leading kernel as shares of the speed of light; where no limit is known, their times."""
    found = places(table)
    if not found:
        return None
    shares = any(row.limit_share is not None for mine in found.values() for row in mine.values())
    if len(found) > MOST_ROWS:
        return latency_strip(drawn(table), colours, WIDTHS["latency"][narrow], shares)
    leader = leader_of(table)
    canvas = Canvas("latency", table, colours, narrow, RIGHT if shares else _beside(found, leader))
    data = _two_times(found, leader, canvas, shares)
    if data.empty:
        return None
    return canvas.finish([*(_light(canvas) if shares else []), *_dumbbells(data, canvas, shares)])


def _beside(found: dict[Any, dict[str, Row]], leader: str) -> int:
    """The room at the right of the last mark for its time and for the name above it, in pixels."""
    rows = [row for mine in found.values() for row in mine.values() if row.kernel in (row.baseline, leader)]
    times = [text_width(timespan(row.p50_ms)) for row in rows if row.p50_ms is not None]
    names = [text_width(row.kernel) for row in rows]
    return min(LONGEST, max(RIGHT, 14 + math.ceil(max(times, default=0)), math.ceil(max(names, default=0))))


def _two_times(found: dict[Any, dict[str, Row]], leader: str, canvas: Canvas, shares: bool) -> pd.DataFrame:
    rows = []
    for number, mine in enumerate(found.values()):
        for row in mine.values():
            value = row.limit_share if shares else row.p50_ms
            if value is not None and row.kernel in (row.baseline, leader):
                who = "leader" if row.kernel == leader else "baseline"
                text = f"{value:.0%}" if shares else timespan(value)
                rows.append((row.workload, row.kernel, who, value, text, canvas.middle(number)))
    return pd.DataFrame(rows, columns=["workload", "kernel", "who", "value", "text", "y"])


def _light(canvas: Canvas) -> list[Any]:
    """The speed of light: a dashed line with its name."""
    amber = canvas.colours["amber"]
    data = pd.DataFrame({"at": [1.0], "top": [-6.0], "bottom": [float(canvas.height)], "name": ["speed of light"]})
    base = alt.Chart(data).encode(x=_share_axis("at:Q"))
    line = base.mark_rule(color=amber, strokeWidth=2, strokeDash=[5, 4], aria=False)
    name = base.mark_text(align="right", baseline="bottom", color=amber, dx=0, dy=-4)
    return [
        line.encode(y=canvas.y("top:Q"), y2="bottom:Q"),
        name.encode(y=canvas.y("top:Q"), text="name:N"),
    ]


def _share_axis(field: str) -> Any:
    axis = alt.Axis(values=[0, 0.25, 0.5, 0.75], format=".0%", title=None)
    return alt.X(field, scale=alt.Scale(domain=[0, 1], nice=False), axis=axis)


def _dumbbells(data: pd.DataFrame, canvas: Canvas, shares: bool) -> list[Any]:
    """Baseline and leader on each row, joined; the leader's number, and both names where they are far apart."""
    colours = canvas.colours
    low, high = reach(data.value.min(), data.value.max())
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    ticks = log_ticks(low, high, canvas.width // 64)
    spans = "datum.value >= 1 ? format(datum.value, ',.9~g') + ' ms' : format(datum.value * 1000, ',.9~g') + ' µs'"
    axis = alt.Axis(values=ticks, labelExpr=spans, title=None, labelOverlap="greedy")

    def x(field: str) -> Any:
        return _share_axis(field) if shares else alt.X(field, scale=scale, axis=axis)

    ends = data.groupby("y", as_index=False).agg(low=("value", "min"), high=("value", "max"))
    tones = alt.Scale(domain=["baseline", "leader"], range=[colours["other"], colours["accent"]])
    who = alt.Color("who:N", legend=None, scale=tones)
    tooltip = [
        alt.Tooltip("workload:N"),
        alt.Tooltip("kernel:N"),
        alt.Tooltip("text:N", title="of speed of light" if shares else "p50"),
    ]
    joined = alt.Chart(ends).mark_rule(color=colours["other"], strokeWidth=2, aria=False)
    points = alt.Chart(data).mark_point(filled=True, size=64, opacity=1)
    numbers = alt.Chart(_numbers(data, canvas, None if shares else (low, high)))
    numbers = numbers.encode(x=x("value:Q"), y=canvas.y("y:Q"), text="text:N")
    place = {name: alt.expr(f"datum.{field}") for name, field in (("align", "align"), ("dx", "shift"), ("dy", "down"))}
    return [
        joined.encode(x=x("low:Q"), x2="high:Q", y=canvas.y("y:Q")),
        points.encode(x=x("value:Q"), y=canvas.y("y:Q"), color=who, tooltip=tooltip),
        written(numbers, colours, baseline="middle", **place),
        *_who_is_who(data, x, canvas, None if shares else (low, high)),
    ]


def _numbers(data: pd.DataFrame, canvas: Canvas, scale: tuple[float, float] | None) -> pd.DataFrame:
    """The leader's number on each row, or the baseline's if it is alone: beside its mark, away from the other mark; below
    its mark if it has no room there."""
    rows = []
    for _, mine in data.groupby("y"):
        one = mine.sort_values("who").iloc[-1]
        place: tuple[str, float, int] = "right", -BESIDE, 0
        if one.value == mine.value.max():
            place = "left", off_light(one.value, one.text, canvas.width, BESIDE) if scale is None else BESIDE, 0
        elif canvas.width * _share_of(one.value, scale) < text_width(one.text) + BESIDE:
            place = "left", -4, BESIDE
        rows.append((one.value, one.y, one.text, *place))
    return pd.DataFrame(rows, columns=["value", "y", "text", "align", "shift", "down"])


def _who_is_who(data: pd.DataFrame, x: Any, canvas: Canvas, scale: tuple[float, float] | None) -> list[Any]:
    """The names of both kernels above their marks, on the row where these are farthest apart."""
    pairs = data.groupby("y").filter(lambda rows: len(rows) > 1)
    shown = data[data.y == data.y.max()]
    if not pairs.empty:
        ends = pairs.groupby("y").value.agg(["min", "max"])
        far = ends["max"] / ends["min"] if scale else ends["max"] - ends["min"]
        shown = data[data.y == far.idxmax()]
    shown = shown.sort_values("value")
    at = [canvas.width * _share_of(value, scale) for value in shown.value]
    layers = []
    for (_, row), (start, limit), mark in zip(
        shown.iterrows(), _beside_each(list(shown.kernel), at, canvas, light=scale is None), at, strict=True
    ):
        name = pd.DataFrame({"value": [row.value], "name": [row.kernel], "y": [row.y]})
        base = alt.Chart(name).encode(x=x("value:Q"), y=canvas.y("y:Q"), text="name:N")
        place = {"align": "left", "baseline": "middle", "dx": round(start - mark), "dy": -14, "limit": limit}
        layers.append(written(base, canvas.colours, quiet=True, **place))
    return layers


def _share_of(value: float, scale: tuple[float, float] | None) -> float:
    """Where a value lies on its axis, from 0 to 1. scale: the ends of a logarithmic one; without, the axis has shares."""
    return math.log(value / scale[0]) / math.log(scale[1] / scale[0]) if scale else value


def _beside_each(names: Sequence[str], at: Sequence[float], canvas: Canvas, light: bool) -> list[tuple[float, float]]:
    """(begin, width) in pixels of the name of each mark, of two at most: inside the chart, neither on the other. light: the axis
    ends at the speed of light; both names stand before its line if they have room."""
    wide = [min(LONGEST, math.ceil(text_width(name))) for name in names]
    before = canvas.width - OFF
    end = before if light and sum(wide) + APART <= before else canvas.width + canvas.room["right"]
    last = max(0.0, min(at[-1] - 3, end - wide[-1]))
    if len(names) == 1:
        return [(last, wide[-1])]
    begin = max(0.0, min(at[0] + 3, last - APART) - wide[0])
    if begin + wide[0] + APART > last:
        last = min(begin + wide[0] + APART, end - wide[-1])
    return [(begin, max(1.0, min(wide[0], last - APART - begin))), (last, wide[-1])]
