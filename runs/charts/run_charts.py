"""Charts of a run, drawn once when it ends: speedup as a forest plot, latency against the speed of light.

Altair makes Vega-Lite specs; vl-convert makes the same SVG for pages without scripts. One per theme: dark charts are
redrawn, not inverted. One per width: text keeps its size on phones. Rows are placed by pixel, so that headings have
their own line and nothing covers a name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from kernels.contract.arm_result import COUNT_NOWHERE
from kernels.report import tables
from runs.charts.theme import THEMES, theme
from runs.models import Chart, Run
from runs.queries import measurements

NARROW, OF = "-narrow", "__"
NAMES = ("speedup", "latency", f"speedup{NARROW}", f"latency{NARROW}")
WIDTHS = {"speedup": (640, 318), "latency": (430, 318)}
"""Total widths without padding, in pixels: (wide page, narrow page). A wide chart fits its column at 1440."""
LEAST_SHOWN = 0.5
"""Speedups below this are drawn at the edge with their number, so that the rest stays readable."""
WORDS = ("FASTER", "SLOWER", "SAME", "UNDECIDED", "unpaired", "needs more runs")
HEADING, ROW, GAP = 20, 19, 6
"""Heights: heading of a workload, row of marks, gap below a workload."""
KERNELS = (150, 96)
"""Widths of the kernel column: (wide page, narrow page). Longer names lose their middle."""
FIGURE, EDGE = 52, 16
"""Room for a number beside its mark, and for a mark alone."""
LIGHT = "speed of light"
OTHERS = "other kernels"
UPRIGHT = "M-0.2,-1.5L0.2,-1.5L0.2,1.5L-0.2,1.5Z"
DRAWING = {"look": 5}
"""Increase it if the drawing changes: stored charts are then redrawn."""


def names_of(run: Run) -> list[str]:
    """Names of a run's charts; of several operations, each has its own: latency__gemm."""
    if run.config.get("operation"):
        return list(NAMES)
    operations = run.spec.operations
    kinds = [name for name in NAMES if not name.endswith(NARROW)]
    return [f"{kind}{OF}{operation}{end}" for operation in operations for kind in kinds for end in ("", NARROW)]


def draw(pk: int) -> None:
    """Draws and stores every chart of a run."""
    run = Run.objects.get(pk=pk)
    for palette in THEMES:
        for name in names_of(run):
            chart_of(run, name, palette)


def chart_of(run: Run, name: str, palette: str) -> Chart | None:
    """The stored chart, or a new one if the run has continued since. None if there is nothing to draw."""
    stored = Chart.objects.filter(run=run, name=name, theme=palette).first()
    if stored and stored.done == run.done and stored.spec.get("usermeta") == DRAWING:
        return stored
    kind, _, operation = name.removesuffix(NARROW).partition(OF)
    chart = {"speedup": speedup, "latency": latency}[kind](
        frame(run, operation), THEMES[palette], narrow=name.endswith(NARROW)
    )
    if chart is None:
        return None
    spec = chart.to_dict() | {"usermeta": DRAWING}
    values = {"spec": spec, "svg": vl_convert.vegalite_to_svg(spec), "done": run.done}
    return Chart.objects.update_or_create(run=run, name=name, theme=palette, defaults=values)[0]


def frame(run: Run, operation: str = "") -> pd.DataFrame:
    """The run's table as drawn, or one operation's part of it: short workload names, microseconds."""
    measured = [m for m in measurements.of_run(run) if operation in ("", m.workload.operation)]
    table = pd.DataFrame(tables.as_records(tables.rows(measured)), columns=list(tables.COLUMNS))
    both = [(m, arm) for m in measured for arm in m.results]
    table["measurement"] = [m.pk for m, _ in both]
    table["limit_us"] = [1e3 * (arm.limit_ms or math.nan) for _, arm in both]
    for column in ("p50", "p50_low", "p50_high"):
        table[f"{column}_us"] = table[f"{column}_ms"].astype(float) * 1e3
    operations = table.workload.str.split(" ", n=2)
    same_dtype = operations.str[1].nunique() <= 1
    table["short"] = operations.str[2] if same_dtype else operations.str[1] + " " + operations.str[2]
    return table[(table.status == "ok") & (~table.verdict.isin(COUNT_NOWHERE))]


def drawn(table: Iterable[tables.Row]) -> list[tables.Row]:
    """The rows whose times count. An impossible or suspect row, or one that counts nowhere, keeps its time in
    the table, not in charts."""
    return [row for row in table if row.status == "ok" and row.verdict not in COUNT_NOWHERE]


def has_limits(table: Iterable[tables.Row]) -> bool:
    """Whether the latency chart shows a speed of light."""
    return any(row.limit_share is not None for row in drawn(table))


def _places(data: pd.DataFrame, lines: bool) -> tuple[pd.DataFrame, float]:
    """Adds `y` in pixels to rows: one line per row, or one per workload.

    Returns also the workloads, with the `y` of their headings and the `top` and `bottom` of their rows; and the height.
    """
    groups, top, data["y"] = [], 0.0, 0.0
    for _, rows in data.groupby("measurement", sort=False):
        count = len(rows) if lines else 1
        first = top + HEADING
        data.loc[rows.index, "y"] = [first + ROW * (n * lines + 0.5) for n in range(len(rows))]
        own = {name: rows[name].iloc[0] for name in ("workload", "short", "margin")}
        groups.append(own | {"y": top + HEADING / 2, "top": first, "bottom": first + ROW * count, "one": 1.0})
        top = first + ROW * count + GAP
    return pd.DataFrame(groups), top - GAP


def _down(height: float) -> Any:
    """Makes channels of pixel positions, from the top."""
    scale = alt.Scale(domain=[0, height], range=[0, height], nice=False)
    return lambda field: alt.Y(field, scale=scale, axis=None)


def _written(base: Any, colours: dict[str, str], **mark: Any) -> Any:
    """Text on a halo in the panel's colour, which hides lines behind it."""
    halo = {"color": colours["panel"], "stroke": colours["panel"], "strokeWidth": 5, "strokeJoin": "round"}
    return base.mark_text(**mark | halo, aria=False) + base.mark_text(**mark)


def _headings(groups: pd.DataFrame, y: Any, left: float, width: float, colours: dict[str, str]) -> Any:
    base = alt.Chart(groups[["short", "y"]]).encode(x=alt.XValue(left), y=y("y:Q"), text="short:N")
    return _written(base, colours, align="left", baseline="middle", fontWeight=600, limit=width)


def speedup(table: pd.DataFrame, colours: dict[str, str], narrow: bool = False) -> Any:
    """A forest plot: point and interval per kernel, grouped by workload; the margin around 1 as a band."""
    data = _near(table[table.speedup.notna()].copy())
    if data.empty:
        return None
    several = data.kernel.nunique() > 1
    left = KERNELS[narrow] if several else 0
    width = WIDTHS["speedup"][narrow] - left
    groups, height = _places(data, lines=True)
    low = max(LEAST_SHOWN, min(0.95, data.speedup_low.min(), 1 / (1 + data.margin.max())))
    high = max(1.05, data.speedup_high.max(), 1 + data.margin.max())
    room = FIGURE if low <= data.speedup.min() < 1 else EDGE
    unit = (high - low) / (width - room - FIGURE)
    groups["low"], groups["high"] = (1 / (1 + groups.margin)).clip(lower=low), 1 + groups.margin
    data = _numbered(data, low, (FIGURE - room) * unit)
    of = "" if several else f"of {data.kernel.iloc[0]} "
    title = [f"speedup {of}over {data.baseline.iloc[0]}, with interval", "shaded: the margin"]
    scale = alt.Scale(domain=[low - room * unit, high + FIGURE * unit], nice=False, zero=False)
    x_axis = alt.Axis(tickCount=width // 50, labelOverlap=True, labelBound=6, titleLimit=width)
    y = _down(height)

    def x(field: str) -> Any:
        return alt.X(field, scale=scale, title=title, axis=x_axis)

    base = alt.Chart(groups[["workload", "margin", "low", "high", "one", "top", "bottom"]])
    span = {"y": y("top:Q"), "y2": alt.Y2("bottom:Q")}
    band = base.mark_rect(color=colours["band"], aria=False).encode(x=x("low:Q"), x2="high:Q", **span)
    one = base.mark_rule(color=colours["quiet"], aria=False).encode(x=x("one:Q"), **span)
    layers = [band, one, *_speedups(data, x, y, colours), _headings(groups, y, -left, left + width, colours)]
    if several:
        cut = data[["y"]].assign(name=[_cut(name, left) for name in data.kernel])
        names = alt.Chart(cut).encode(x=alt.XValue(-left), y=y("y:Q"), text="name:N")
        layers.append(names.mark_text(align="left", baseline="middle", limit=left - 6, color=colours["quiet"]))
    return theme(alt.layer(*layers).properties(width=width, height=height), colours)


def _numbered(data: pd.DataFrame, low: float, room: float) -> pd.DataFrame:
    """Adds positions on an axis from `low`, and a number beside each mark, away from 1 if there is `room`.

    The band and the line at 1 stay free: a number inside its band moves outside.
    """
    data["at"] = data.speedup.clip(lower=low)
    data["from"], data["to"] = data.speedup_low.clip(lower=low), data.speedup_high.clip(lower=low)
    data["edge"] = (data.speedup < low).map({True: "left", False: ""})
    data["side"] = ((data.speedup < 1) & (data["from"] >= low + room)).map({True: "left", False: "right"})
    data["text"] = data.speedup.map("{:.3f}".format)
    data["word"] = data.verdict.where(data.verdict.isin(WORDS), "UNDECIDED")
    beside = data["to"].where(data.speedup < 1, data["to"].clip(lower=1 + data.margin))
    data["beside"] = beside.where(data.side == "right", data["from"].clip(upper=1 / (1 + data.margin)))
    return data


def _speedups(data: pd.DataFrame, x: Any, y: Any, colours: dict[str, str]) -> list[Any]:
    """Interval, point and number of each row; a triangle at the left edge for values beyond it."""
    words = alt.Scale(domain=list(WORDS), range=[colours["faster"], colours["slower"], *[colours["quiet"]] * 4])
    colour = alt.Color("word:N", legend=None, scale=words)
    shapes = alt.Scale(domain=["", "left"], range=["circle", "triangle-left"])
    tooltip = [alt.Tooltip("workload:N"), alt.Tooltip("kernel:N"), alt.Tooltip("verdict:N"), alt.Tooltip("rounds:Q")]
    for field, name in (("speedup", "speedup"), ("speedup_low", "from"), ("speedup_high", "to")):
        tooltip.append(alt.Tooltip(f"{field}:Q", format=".3f", title=name))
    places = ["y", "at", "from", "to", "edge", "side", "beside", "text"]
    said = ["workload", "kernel", "word", "verdict", "rounds", "speedup", "speedup_low", "speedup_high"]
    base = alt.Chart(data[places + said]).encode(y=y("y:Q"))
    bar = base.mark_rule(strokeWidth=6, opacity=0.4, strokeCap="round", aria=False)
    point = base.mark_point(filled=True, size=55, opacity=1)
    text = base.encode(x=x("beside:Q"), text="text:N", tooltip=tooltip)
    left, right = (text.transform_filter(f"datum.side == '{side}'") for side in ("left", "right"))
    return [
        _written(left, colours, align="right", baseline="middle", dx=-10),
        _written(right, colours, align="left", baseline="middle", dx=10),
        bar.encode(x=x("from:Q"), x2="to:Q", color=colour),
        point.encode(x=x("at:Q"), color=colour, shape=alt.Shape("edge:N", legend=None, scale=shapes), tooltip=tooltip),
    ]


def _cut(name: str, width: int) -> str:
    """Shortens a name in the middle: long names usually differ at their ends."""
    most = (width - 6) * 10 // 64
    half = (most - 2) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"


def _near(data: pd.DataFrame) -> pd.DataFrame:
    """Removes kernels far behind on all workloads, so that the rest stays readable."""
    best = data.groupby("kernel").speedup_high.transform("max")
    return data[best >= LEAST_SHOWN].copy() if (best >= LEAST_SHOWN).any() else data


def left_out(table: Iterable[tables.Row]) -> list[str]:
    """Kernels missing in the speedup chart: below LEAST_SHOWN on every workload."""
    best: dict[str, float] = {}
    for row in drawn(table):
        if row.speedup_high is not None:
            best[row.kernel] = max(best.get(row.kernel, 0.0), row.speedup_high)
    far = [kernel for kernel, high in best.items() if high < LEAST_SHOWN]
    return far if len(far) < len(best) else []


def latency(table: pd.DataFrame, colours: dict[str, str], narrow: bool = False) -> Any:
    """p50 of each kernel with its interval on a log axis, and the speed of light if known."""
    data = table[table.p50_us.notna()].copy()
    if data.empty:
        return None
    width = WIDTHS["latency"][narrow]
    groups, height = _places(data, lines=False)
    baseline = data.baseline.iloc[0]
    fastest = _fastest(data, baseline)
    data["who"] = data.kernel.where(data.kernel.isin([baseline, fastest]), OTHERS)
    data["rank"] = data.who.map({fastest: 1, baseline: 2}).fillna(0)
    data = data.sort_values("rank", kind="stable")
    limits = data[data.limit_us.notna()].drop_duplicates("measurement").assign(who=LIGHT)
    kinds = [
        (baseline, UPRIGHT, colours["ink"], colours["ink"]),
        (fastest, "circle", colours["accent"], colours["accent"]),
        (OTHERS, "circle", colours["other"], colours["other"]),
        (LIGHT, "diamond", "transparent", colours["ink"]),
    ]
    kinds = [kind for kind in kinds if kind[0] in {*data.who, *limits.who}]
    times = pd.concat([data.p50_us, data.p50_low_us, data.p50_high_us, limits.limit_us])
    low, high = _reach(times.min(), times.max())
    scale = alt.Scale(type="log", domain=[low, high], nice=False, padding=14)
    ticks = _ticks(low, high, width // 45)
    axis = alt.Axis(format=",.9~g", values=ticks, labelOverlap="greedy", labelSeparation=6)
    y = _down(height)

    def x(field: str) -> Any:
        return alt.X(field, scale=scale, title="p50 in microseconds, log", axis=axis)

    layers = [*_latencies(data, limits, x, y, _kinds(kinds, width)), _headings(groups, y, 0, width, colours)]
    return theme(alt.layer(*layers).properties(width=width, height=height), colours)


def _latencies(data: pd.DataFrame, limits: pd.DataFrame, x: Any, y: Any, kinds: dict[str, Any]) -> list[Any]:
    """Interval and mark of each time, other kernels at the back; and the limits."""
    name = alt.Tooltip("workload:N")
    time = [alt.Tooltip("kernel:N"), alt.Tooltip("p50_us:Q", format=",.4~g", title="p50 us"), alt.Tooltip("n:Q")]
    columns = ["y", "workload", "kernel", "who", "p50_us", "p50_low_us", "p50_high_us", "n"]
    base = alt.Chart(data[columns]).encode(y=y("y:Q"))
    bar = base.mark_rule(strokeWidth=6, opacity=0.4, strokeCap="round", aria=False)
    point = base.mark_point(size=50, opacity=1, strokeWidth=1.5)
    layers = [
        bar.encode(x=x("p50_low_us:Q"), x2="p50_high_us:Q", stroke=kinds["stroke"]),
        point.encode(x=x("p50_us:Q"), **kinds, tooltip=[name, *time]),
    ]
    if len(limits):
        light = alt.Chart(limits[["y", "workload", "who", "limit_us"]]).mark_point(size=60, opacity=1, strokeWidth=1.5)
        limit = alt.Tooltip("limit_us:Q", format=",.4~g", title="limit us")
        layers.append(light.encode(x=x("limit_us:Q"), y=y("y:Q"), **kinds, tooltip=[name, limit]))
    return layers


def _kinds(kinds: list[tuple[str, str, str, str]], width: float) -> dict[str, Any]:
    """Channels for (name, shape, fill, stroke) of each kind of mark, and their one legend."""
    names, shapes, fills, strokes = (list(part) for part in zip(*kinds, strict=True))
    fits = sum(7 * len(name) + 30 for name in names) <= width
    columns = len(names) if fits else 2
    limit = 0 if fits else width / columns - 30
    legend = alt.Legend(columns=columns, labelLimit=limit, symbolStrokeWidth=1.5, symbolSize=50)
    ranges = {"shape": (alt.Shape, shapes), "fill": (alt.Fill, fills), "stroke": (alt.Stroke, strokes)}
    return {
        channel: kind("who:N", scale=alt.Scale(domain=names, range=values), legend=legend)
        for channel, (kind, values) in ranges.items()
    }


def _reach(low: float, high: float) -> tuple[float, float]:
    """(from, to) of the latency axis: `to` is at least 1.5 times `from`."""
    room = max(1.0, math.sqrt(1.5 * low / high))
    return low / room, high * room


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Ticks on a log axis, at least three: 1, 2, 5, 10, ...; decades if too many; even steps if too few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for leads, every in (((1, 2, 5), 1), ((1,), 1), ((1,), 2), ((1,), 3)):
        ticks = [lead * 10.0**decade for decade in decades if decade % every == 0 for lead in leads]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if 3 <= len(ticks) <= most:
            return ticks
    steps = (lead * 10.0**decade for decade in range(decades[-1], decades[0] - 3, -1) for lead in (5, 2, 1))
    evens = ([step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)] for step in steps)
    return next(ticks for ticks in evens if len(ticks) >= 4)


def _fastest(data: pd.DataFrame, baseline: str) -> str | None:
    """Highlighted kernel: best geometric mean over the most workloads."""
    others = data[(data.kernel != baseline) & data.speedup.notna()]
    if others.empty:
        return None
    stand = others.groupby("kernel").speedup.agg(["count", lambda s: s.prod() ** (1 / len(s))])
    stand.columns = ["count", "mean"]
    return str(stand.sort_values(["count", "mean"]).index[-1])
