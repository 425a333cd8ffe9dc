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
from kernels.report.tables import Row, words_of
from runs.charts.run_strips import MOST_KERNELS, latency_strip, speedup_strip
from runs.charts.scales import log_ticks, placed, ratio_ticks, reach
from runs.charts.theme import in_pixels, written
from runs.models import Run
from runs.queries import measurements
from runs.templatetags.figures import timespan

NARROW, OF = "-narrow", "__"
NAMES = ("speedup", "latency", f"speedup{NARROW}", f"latency{NARROW}")
WIDTHS = {"speedup": (648, 326), "latency": (434, 326)}
"""Whole widths in pixels: (wide page, narrow page). A wide chart fits its column at 1440."""
LABELS = {"speedup": (210, 116), "latency": (116, 116)}
"""Widths of the workloads' column."""
TOP, ROW, BOTTOM, RIGHT = 26, 30, 28, 46
"""Heights above, of and below the rows, and the room for a number beside the last mark."""
MOST_ROWS = 30
"""Workloads that have a row each; of more, kernels have."""
FIGURE = 52
"""Room for a number beside its mark."""
LETTER, LONGEST = 6.8, 120
"""Width of a letter of a chart's text, and the most room that a name gets, in pixels."""
ONE_LINE = 16
"""Signs of a label that fit into one line beside a small chart."""
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
    """The kernel of the page's headline; empty if none was compared."""
    first = ranking(tables.compared(drawn(table))).first
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


def short_labels(table: Sequence[Row], narrow: bool) -> list[str]:
    """The workloads without what all share: on a wide page operation and dtype, on a phone every size."""
    labels = list({key: next(iter(rows.values())).workload for key, rows in places(table).items()}.values())
    words = [words_of(label) for label in labels]
    names = [{part.partition("=")[0]: part for part in parts[2:]} for parts in words]
    varies = {name for one in names for name in one if len({other.get(name) for other in names}) > 1}
    narrow = narrow and bool(varies)
    dtypes = len({parts[1] for parts in words}) > 1
    return [
        " ".join([*([parts[1]] if dtypes else []), *(part for name, part in one.items() if not narrow or name in varies)])
        or parts[-1]
        for parts, one in zip(words, names, strict=True)
    ]  # fmt: skip


def _two_lines(label: str) -> list[str]:
    """A label that is too long for one line beside a small chart."""
    words = label.split(" ")
    return [label] if len(label) <= ONE_LINE else [" ".join(words[:2]), " ".join(words[2:])]


class Canvas:
    """The rows of a chart: sizes, the channels of pixels, and the labels at the left."""

    def __init__(
        self, name: str, table: Sequence[Row], colours: dict[str, str], narrow: bool, right: int = RIGHT
    ) -> None:
        self.colours, self.left = colours, LABELS[name][narrow]
        self.two_lines = narrow or name == "latency"
        self.labels = short_labels(table, self.two_lines)
        self.width = WIDTHS[name][narrow] - self.left - right
        self.height = ROW * len(self.labels)
        self.room = {"left": self.left, "top": TOP, "right": right, "bottom": BOTTOM}

    def y(self, field: str) -> Any:
        return placed(alt.Y, field, self.height)

    def named(self) -> Any:
        labels = [_two_lines(label) for label in self.labels] if self.two_lines else self.labels
        data = pd.DataFrame({"label": labels, "y": [self.middle(n) for n in range(len(self.labels))]})
        base = alt.Chart(data).encode(x=alt.XValue(-self.left), y=self.y("y:Q"), text="label:N")
        return base.mark_text(
            align="left", baseline="middle", limit=self.left - 4, lineHeight=13, color=self.colours["ink"]
        )

    def middle(self, number: int) -> float:
        return ROW * (number + 0.5)

    def finish(self, layers: list[Any]) -> Any:
        return in_pixels(alt.layer(*layers, self.named()), self.width, self.height, self.room, self.colours)


# --- speedup ----------------------------------------------------------------------------------------------------------


def speedup(table: Sequence[Row], colours: dict[str, str], narrow: bool = False) -> Any:
    """The leading kernel's speedup with its interval on each workload; the margin around 1 as a band."""
    leader = leader_of(table)
    if not leader:
        return None
    if len(places(table)) > MOST_ROWS:
        return speedup_strip(drawn(table), colours, WIDTHS["speedup"][narrow])
    canvas = Canvas("speedup", table, colours, narrow)
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
    said = data[data.speedup.notna()].copy()
    said["side"] = [_side(row.low, row.high, low, high, canvas.width) for row in said.itertuples()]
    return canvas.finish([band, one, *_marks(said, x, canvas), *_missing(data[data.speedup.isna()], x, canvas)])


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
                "text": f"{row.speedup:.2f}x" if row and has else str(status.get(key, "not measured")),
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
        written(right.encode(x=x("high:Q"), text="text:N"), colours, align="left", baseline="middle", dx=11),
        written(left.encode(x=x("low:Q"), text="text:N"), colours, align="right", baseline="middle", dx=-11),
        bar.encode(x=x("low:Q"), x2="high:Q", color=colour),
        point.encode(x=x("speedup:Q"), color=colour, tooltip=tooltip),
    ]


def _missing(data: pd.DataFrame, x: Any, canvas: Canvas) -> list[Any]:
    """Why the leader has no speedup on a workload, beside the line at 1."""
    if data.empty:
        return []
    base = alt.Chart(data[["workload", "one", "text", "y"]]).encode(x=x("one:Q"), y=canvas.y("y:Q"), text="text:N")
    return [base.mark_text(align="left", baseline="middle", dx=11, color=canvas.colours["quiet"])]


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
    texts = [timespan(row.p50_ms) for row in rows if row.p50_ms is not None]
    longest = max(map(len, texts), default=0)
    named = max((len(row.kernel) for row in rows), default=0)
    return min(LONGEST, max(RIGHT, 14 + round(LETTER * longest), round(LETTER * named)))


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
    """Baseline and leader on each row, joined; the larger with its number, and both names where they are far apart."""
    colours = canvas.colours
    low, high = reach(data.value.min(), data.value.max())
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    ticks = log_ticks(low, high, canvas.width // 64)
    spans = "datum.value >= 1 ? format(datum.value, ',.9~g') + ' ms' : format(datum.value * 1000, ',.9~g') + ' µs'"
    axis = alt.Axis(values=ticks, labelExpr=spans, title=None, labelOverlap="greedy")

    def x(field: str) -> Any:
        return _share_axis(field) if shares else alt.X(field, scale=scale, axis=axis)

    ends = data.groupby("y", as_index=False).agg(low=("value", "min"), high=("value", "max"))
    last = data.sort_values("value").groupby("y", as_index=False).last()[["value", "y", "text"]]
    who = alt.Color(
        "who:N",
        legend=None,
        scale=alt.Scale(domain=["baseline", "leader"], range=[colours["other"], colours["accent"]]),
    )
    tooltip = [
        alt.Tooltip("workload:N"),
        alt.Tooltip("kernel:N"),
        alt.Tooltip("text:N", title="of speed of light" if shares else "p50"),
    ]
    joined = alt.Chart(ends).mark_rule(color=colours["other"], strokeWidth=2, aria=False)
    points = alt.Chart(data).mark_point(filled=True, size=64, opacity=1)
    numbers = alt.Chart(last).encode(x=x("value:Q"), y=canvas.y("y:Q"), text="text:N")
    return [
        joined.encode(x=x("low:Q"), x2="high:Q", y=canvas.y("y:Q")),
        points.encode(x=x("value:Q"), y=canvas.y("y:Q"), color=who, tooltip=tooltip),
        written(numbers, colours, align="left", baseline="middle", dx=11),
        *_who_is_who(data, x, canvas, shares),
    ]


def _who_is_who(data: pd.DataFrame, x: Any, canvas: Canvas, shares: bool) -> list[Any]:
    """The names of both kernels above their marks, on the row where these are farthest apart."""
    pairs = data.groupby("y").filter(lambda rows: len(rows) > 1)
    shown = data[data.y == data.y.max()]
    if not pairs.empty:
        ends = pairs.groupby("y").value.agg(["min", "max"])
        far = (ends["max"] - ends["min"]) if shares else ends["max"] / ends["min"]
        shown = data[data.y == far.idxmax()]
    shown = shown.sort_values("value")
    layers = []
    for number, (_, row) in enumerate(shown.iterrows()):
        align = "left" if number or len(shown) == 1 else "right"
        name = pd.DataFrame({"value": [row.value], "name": [row.kernel], "y": [row.y]})
        base = alt.Chart(name).encode(x=x("value:Q"), y=canvas.y("y:Q"), text="name:N")
        shift = -3 if align == "left" else 3
        layers.append(
            written(base, canvas.colours, quiet=True, align=align, baseline="middle", dx=shift, dy=-14, limit=LONGEST)
        )
    return layers
