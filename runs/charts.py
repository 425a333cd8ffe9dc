"""Charts of a run, drawn once when it has ended: speedup as a forest plot, latency against the speed of light.

Altair makes Vega-Lite specs; vl-convert makes the same SVG for pages without scripts. One per theme: in the dark a
chart is drawn anew, not inverted.
"""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from kernels import report
from runs.models import Chart, Measurement, Run

NAMES = ("speedup", "latency")
THEMES: dict[str, dict[str, str]] = {
    "light": {
        "ink": "#1b1d1f", "quiet": "#6b7075", "line": "#e4e4e0", "faster": "#0b7a6b", "slower": "#b8430e",
        "accent": "#1f5fbf", "band": "#eeeeeb",
    },
    "dark": {
        "ink": "#e8e9ea", "quiet": "#9aa1a8", "line": "#2c3035", "faster": "#4fc7b3", "slower": "#ff9a66",
        "accent": "#7fb0ff", "band": "#26292d",
    },
}  # fmt: skip
FONT = "DejaVu Sans, system-ui, sans-serif"
LEAST_SHOWN = 0.5
"""Speedups below this are drawn at the edge, with their number: a chart of 0.03x shows nothing else."""
WORDS = ("FASTER", "SLOWER", "SAME", "UNDECIDED", "unpaired", "needs more runs")
ROW = 19
LOOK = {"look": 2}
"""Raise when the drawing changes: charts drawn before are then drawn again."""


def draw(pk: int) -> None:
    """Draws and stores every chart of a run."""
    run = Run.objects.get(pk=pk)
    for theme in THEMES:
        for name in NAMES:
            chart_of(run, name, theme)


def chart_of(run: Run, name: str, theme: str) -> Chart | None:
    """A chart as stored, or drawn now if the run has gone on since. None if there is nothing to draw."""
    found = Chart.objects.filter(run=run, name=name, theme=theme).first()
    if found and found.done == run.done and found.spec.get("usermeta") == LOOK:
        return found
    chart = {"speedup": speedup, "latency": latency}[name](frame(run), THEMES[theme])
    if chart is None:
        return None
    spec = chart.to_dict() | {"usermeta": LOOK}
    values = {"spec": spec, "svg": vl_convert.vegalite_to_svg(spec), "done": run.done}
    return Chart.objects.update_or_create(run=run, name=name, theme=theme, defaults=values)[0]


def frame(run: Run) -> pd.DataFrame:
    """The run's table, with short workload names and microseconds."""
    found: list[Measurement] = list(
        run.measurements.select_related("workload").prefetch_related("results__kernel", "results__version")
    )
    order = {w.key: number for number, w in enumerate(run.spec.workloads)}
    found.sort(key=lambda m: order.get(m.workload.key, len(order)))
    table = pd.DataFrame(report.rows([m.as_event() for m in found]), columns=list(report.COLUMNS))
    limits = {(m.workload.key, r.kernel.name): r.limit_ms for m in found for r in m.results.all()}
    table["limit_us"] = [
        1e3 * (limits.get((k, n)) or float("nan")) for k, n in zip(table.workload_key, table.kernel, strict=True)
    ]
    for column in ("p50", "p50_low", "p50_high"):
        table[f"{column}_us"] = table[f"{column}_ms"].astype(float) * 1e3
    operations = table.workload.str.split(" ", n=2)
    same_dtype = operations.str[1].nunique() <= 1
    table["short"] = operations.str[2] if same_dtype else operations.str[1] + " " + operations.str[2]
    return table


def look(chart: Any, colours: dict[str, str]) -> Any:
    """One look for every chart: no frame, quiet axes, the page's font."""
    quiet, ink = colours["quiet"], colours["ink"]
    font = {"labelFont": FONT, "titleFont": FONT, "labelFontSize": 11, "titleFontSize": 11}
    axis = {"labelColor": quiet, "titleColor": quiet, "gridColor": colours["line"], "titleFontWeight": "normal"}
    legend = {
        "labelColor": quiet,
        "title": None,
        "orient": "top",
        "labelFont": FONT,
        "labelFontSize": 11,
        "symbolOpacity": 1,
    }
    return chart.configure(
        background="transparent",
        padding=4,
        autosize=alt.AutoSizeParams(type="pad"),
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(**axis, **font, domain=False, ticks=False, labelLimit=240),
        text=alt.MarkConfig(font=FONT, fontSize=11, color=ink),
        legend=alt.LegendConfig(**legend),
        header=alt.HeaderConfig(labelColor=ink, labelFont=FONT, labelFontSize=11, labelFontWeight=600, title=None),
    )


def speedup(table: pd.DataFrame, colours: dict[str, str]) -> Any:
    """A forest plot: point and interval per kernel, grouped by workload; the margin of SAME as a band, 1 as a line."""
    data = _near(table[table.speedup.notna()].copy())
    if data.empty:
        return None
    low = max(LEAST_SHOWN, min(0.95, data.speedup_low.min() - 0.02))
    high = max(1.05, data.speedup_high.max())
    scale = alt.Scale(domain=[low, high + 0.14 * (high - low)], nice=False, zero=False)
    data["at"] = data.speedup.clip(lower=low)
    data["from"], data["to"] = data.speedup_low.clip(lower=low), data.speedup_high.clip(lower=low)
    data["text"] = [f"{'◂ ' if s < low else ''}{s:.2f}" for s in data.speedup]
    data["word"] = data.verdict.where(data.verdict.isin(WORDS), "UNDECIDED")
    y, height = _rows(data, colours)
    title = f"speedup over {data.baseline.iloc[0]}, with interval"

    def x(field: str) -> Any:
        return alt.X(field, scale=scale, title=title, axis=alt.Axis(tickCount=7))

    words = alt.Scale(domain=list(WORDS), range=[colours["faster"], colours["slower"], *[colours["quiet"]] * 4])
    colour = alt.Color("word:N", legend=None, scale=words)
    tooltip = [alt.Tooltip("workload:N"), alt.Tooltip("kernel:N"), alt.Tooltip("verdict:N"), alt.Tooltip("rounds:Q")]
    for field, name in (("speedup", "speedup"), ("speedup_low", "from"), ("speedup_high", "to")):
        tooltip.append(alt.Tooltip(f"{field}:Q", format=".3f", title=name))
    columns = ["row", "workload", "kernel", "word", "verdict", "rounds", "at", "from", "to", "text"]
    base = alt.Chart(data[[*columns, "speedup", "speedup_low", "speedup_high"]])
    margin = pd.DataFrame([{"low": max(low, 0.99), "high": 1.01, "one": 1.0}])
    band = alt.Chart(margin).mark_rect(color=colours["band"]).encode(x=x("low:Q"), x2="high:Q")
    one = alt.Chart(margin).mark_rule(color=colours["quiet"]).encode(x=x("one:Q"))
    bar = base.mark_rule(strokeWidth=6, opacity=0.35, strokeCap="round").encode(
        x=x("from:Q"), x2="to:Q", y=y, color=colour
    )
    point = base.mark_point(filled=True, size=55, opacity=1).encode(x=x("at:Q"), y=y, color=colour, tooltip=tooltip)
    text = base.mark_text(align="left", dx=9).encode(x=x("to:Q"), y=y, text="text:N", tooltip=tooltip)
    return look((band + one + bar + point + text).properties(width=430, height=height), colours)


def _rows(data: pd.DataFrame, colours: dict[str, str]) -> tuple[Any, float]:
    """The y axis and the height: one row per workload; with several kernels, a heading per workload and a row for each."""
    if data.kernel.nunique() == 1:
        data["row"] = data.short
        return alt.Y("row:N", sort=list(data.row), title=None), max(60, 26 * len(data))
    data["row"] = data.short + "\t" + data.kernel
    order: list[str] = []
    for short, row in zip(data.short, data.row, strict=True):
        order += [row] if f"{short}\t" in order else [f"{short}\t", row]
    is_heading = "split(datum.value, '\t')[1] == ''"
    axis = alt.Axis(
        labelExpr="split(datum.value, '\t')[1] == '' ? split(datum.value, '\t')[0] : split(datum.value, '\t')[1]",
        labelColor=alt.condition(is_heading, alt.value(colours["ink"]), alt.value(colours["quiet"])),
        labelFontWeight=alt.condition(is_heading, alt.value("bold"), alt.value("normal")),
    )
    return alt.Y("row:N", scale=alt.Scale(domain=order), title=None, axis=axis), ROW * len(order)


def _near(data: pd.DataFrame) -> pd.DataFrame:
    """Without kernels that are far behind everywhere: a chart that reaches down to 0.03x shows nothing else."""
    best = data.groupby("kernel").speedup_high.transform("max")
    return data[best >= LEAST_SHOWN] if (best >= LEAST_SHOWN).any() else data.assign(speedup=data.speedup)


def left_out(table: list[dict[str, Any]]) -> list[str]:
    """Kernels that the speedup chart does not draw, because they are below LEAST_SHOWN on every workload."""
    best: dict[str, float] = {}
    for row in table:
        if row["speedup"] is not None:
            best[row["kernel"]] = max(best.get(row["kernel"], 0.0), row["speedup_high"])
    far = [kernel for kernel, high in best.items() if high < LEAST_SHOWN]
    return far if len(far) < len(best) else []


def latency(table: pd.DataFrame, colours: dict[str, str]) -> Any:
    """Where each kernel stands: p50 with its interval on a log axis, and the speed of light as a diamond."""
    data = table[table.p50_us.notna()].copy()
    if data.empty:
        return None
    baseline = data.baseline.iloc[0]
    fastest = _fastest(data, baseline)
    data["who"] = ["baseline" if k == baseline else "best" if k == fastest else "others" for k in data.kernel]
    names = {"baseline": baseline, "best": fastest or "", "others": "other kernels"}
    data["who"] = data.who.map(names)
    limits = data.dropna(subset=["limit_us"]).drop_duplicates("workload_key").copy()
    limits["who"] = "speed of light"
    shown = [n for n in (baseline, fastest, "other kernels") if n and n in set(data.who)] + ["speed of light"] * bool(
        len(limits)
    )
    palette = {names["baseline"]: colours["ink"], names["best"]: colours["accent"]}
    palette |= {names["others"]: colours["quiet"], "speed of light": colours["slower"]}
    shapes = {"speed of light": "diamond"}
    sort = list(dict.fromkeys(data.short))
    y = alt.Y("short:N", sort=sort, title=None)
    x_title = "p50 in microseconds, log"
    colour = alt.Color("who:N", scale=alt.Scale(domain=shown, range=[palette[n] for n in shown]))
    shape = alt.Shape("who:N", scale=alt.Scale(domain=shown, range=[shapes.get(n, "circle") for n in shown]))
    tooltip = [
        alt.Tooltip("workload:N"),
        alt.Tooltip("kernel:N"),
        alt.Tooltip("p50_us:Q", format=",.4~g", title="p50 us"),
        alt.Tooltip("n:Q"),
    ]
    scale = alt.Scale(type="log", nice=False, padding=12)
    columns = ["short", "workload", "kernel", "who", "p50_us", "p50_low_us", "p50_high_us", "n"]
    base = alt.Chart(data[columns])
    axis = alt.Axis(format="~s" if data.p50_us.max() >= 1e4 else "~g", values=_ticks(data, limits))
    bar = base.mark_rule(strokeWidth=6, opacity=0.35, strokeCap="round").encode(
        x=alt.X("p50_low_us:Q", scale=scale, title=x_title, axis=axis), x2="p50_high_us:Q", y=y, color=colour
    )
    faded = alt.condition("datum.who == 'other kernels'", alt.value(0.45), alt.value(1))
    point = base.mark_point(filled=True, size=55).encode(
        opacity=faded,
        x=alt.X("p50_us:Q", scale=scale, title=x_title, axis=axis),
        y=y,
        color=colour,
        shape=shape,
        tooltip=tooltip,
    )
    layers = bar + point
    if len(limits):
        light = alt.Chart(limits[["short", "workload", "who", "limit_us"]]).mark_point(filled=True, size=60, opacity=1)
        layers += light.encode(
            x=alt.X("limit_us:Q", scale=scale, title=x_title, axis=axis), y=y, color=colour, shape=shape,
            tooltip=[alt.Tooltip("workload:N"), alt.Tooltip("limit_us:Q", format=",.4~g", title="limit us")],
        )  # fmt: skip
    return look(layers.properties(width=330, height=max(60, 26 * len(sort))), colours)


def _ticks(data: pd.DataFrame, limits: pd.DataFrame) -> list[float]:
    """1, 2, 5, 10, ... over what is drawn; powers of ten alone if that is much."""
    low = min(data.p50_us.min(), limits.limit_us.min() if len(limits) else math.inf)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(data.p50_us.max())) + 1)
    steps = (1, 2, 5) if len(decades) <= 3 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps]


def _fastest(data: pd.DataFrame, baseline: str) -> str | None:
    """The candidate with the best geometric mean over the most workloads: the one to look at."""
    others = data[(data.kernel != baseline) & data.speedup.notna()]
    if others.empty:
        return None
    stand = others.groupby("kernel").speedup.agg(["count", lambda s: s.prod() ** (1 / len(s))])
    stand.columns = ["count", "mean"]
    return str(stand.sort_values(["count", "mean"]).index[-1])
