"""Charts of a run of many workloads: a row for each kernel, a mark for each workload, the median with its number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from kernels.report.tables import Row
from runs.charts.row_labels import off_light
from runs.charts.scales import log_ticks, placed, ratio_ticks, reach, spread
from runs.charts.theme import in_pixels, written
from runs.templatetags.figures import timespan

MOST_KERNELS = 30
MOST_MARKS = 160
"""Marks of one kernel: more workloads are drawn as evenly spaced ones of them, both ends among them."""
TOP, ROW, BOTTOM, RIGHT, LEFT = 26, 30, 28, 56, 104
BESIDE = 8
"""Pixels between the last mark of a row and its number."""
DECIDED = {"FASTER": "faster", "SLOWER": "slower"}


def speedup_strip(rows: Sequence[Row], colours: dict[str, str], width: int) -> Any:
    """The speedups of each kernel on all workloads."""
    values = [
        (row.kernel, row.workload, row.speedup, DECIDED.get(str(row.verdict), "other"))
        for row in rows
        if row.speedup is not None
    ]
    if not values:
        return None
    low, high = min(0.95, *(one[2] for one in values)), max(1.05, *(one[2] for one in values))
    inner = width - LEFT - RIGHT
    scale = alt.Scale(type="log", domain=[low / 1.02, high * 1.02], nice=False)
    ticks = ratio_ticks(low, high, inner // 52)
    axis = alt.Axis(values=ticks, labelExpr="datum.value + 'x'", title=None)
    return _strip(values, lambda value: f"{value:.2f}x", scale, axis, colours, width, one=1.0)


def latency_strip(rows: Sequence[Row], colours: dict[str, str], width: int, shares: bool) -> Any:
    """The shares of the speed of light of each kernel on all workloads, or its times."""
    both = [(row, row.limit_share if shares else row.p50_ms) for row in rows]
    values = [
        (row.kernel, row.workload, value, "other" if row.kernel == row.baseline else "accent")
        for row, value in both
        if value is not None
    ]
    if not values:
        return None
    if shares:
        axis = alt.Axis(values=[0, 0.25, 0.5, 0.75], format=".0%", title=None)
        return _strip(values, "{:.0%}".format, alt.Scale(domain=[0, 1], nice=False), axis, colours, width, light=1.0)
    low, high = reach(min(one[2] for one in values), max(one[2] for one in values))
    spans = "datum.value >= 1 ? format(datum.value, ',.9~g') + ' ms' : format(datum.value * 1000, ',.9~g') + ' µs'"
    ticks = log_ticks(low, high, (width - LEFT - RIGHT) // 64)
    axis = alt.Axis(values=ticks, labelExpr=spans, title=None, labelOverlap="greedy")
    return _strip(values, timespan, alt.Scale(type="log", domain=[low, high], nice=False), axis, colours, width)


def _strip(
    values: list[tuple[str, str, float, str]], text: Any, scale: Any, axis: Any, colours: dict[str, str], width: int,
    one: float | None = None, light: float | None = None,
) -> Any:  # fmt: skip
    """values: (kernel, workload, value, colour)."""
    frame = pd.DataFrame(values, columns=["kernel", "workload", "value", "tone"])
    medians = frame.groupby("kernel").value.median().sort_values(ascending=one is None and light is None)
    names = list(medians.index[:MOST_KERNELS])
    kept = [frame[frame.kernel == name] for name in names]
    data = pd.concat([part.iloc[spread(list(part.value), MOST_MARKS)] for part in kept])
    data["y"] = [ROW * (names.index(name) + 0.5) for name in data.kernel]
    middles = pd.DataFrame({"kernel": names, "value": [medians[name] for name in names]})
    middles["y"] = [ROW * (number + 0.5) for number in range(len(names))]
    middles["end"] = [part.value.max() for part in kept]
    middles["text"] = [text(value) for value in middles.value]
    inner, height = width - LEFT - RIGHT, ROW * len(names)
    ends = zip(middles.end, middles.text, strict=True)
    middles["shift"] = [off_light(end, said, inner, BESIDE) if light else BESIDE for end, said in ends]

    def x(field: str) -> Any:
        return alt.X(field, scale=scale, axis=axis)

    def y(field: str) -> Any:
        return placed(alt.Y, field, height)

    tones = ["faster", "slower", "other", "accent"]
    colour = alt.Color("tone:N", legend=None, scale=alt.Scale(domain=tones, range=[colours[tone] for tone in tones]))
    tooltip = [alt.Tooltip("kernel:N"), alt.Tooltip("workload:N"), alt.Tooltip("value:Q", format=",.4~r")]
    layers = []
    for at, tone, dash in ((one, "quiet", [1, 0]), (light, "amber", [5, 4])):
        if at is not None:
            line = alt.Chart(pd.DataFrame({"at": [at], "top": [-6], "bottom": [height]}))
            rule = line.mark_rule(color=colours[tone], strokeDash=dash, strokeWidth=2 if light else 1, aria=False)
            layers.append(rule.encode(x=x("at:Q"), y=y("top:Q"), y2="bottom:Q"))
    marks = alt.Chart(data).mark_tick(thickness=2, height=14, opacity=0.35)
    middle = alt.Chart(middles).mark_tick(thickness=3, height=20, color=colours["ink"])
    number = alt.Chart(middles).encode(x=x("end:Q"), y=y("y:Q"), text="text:N")
    name = alt.Chart(middles).encode(x=alt.XValue(-LEFT), y=y("y:Q"), text="kernel:N")
    layers += [
        marks.encode(x=x("value:Q"), y=y("y:Q"), color=colour, tooltip=tooltip),
        middle.encode(x=x("value:Q"), y=y("y:Q")),
        written(number, colours, align="left", baseline="middle", dx=alt.expr("datum.shift")),
        name.mark_text(align="left", baseline="middle", limit=LEFT - 8, color=colours["ink"]),
    ]
    room = {"left": LEFT, "top": TOP, "right": RIGHT, "bottom": BOTTOM}
    return in_pixels(alt.layer(*layers), inner, height, room, colours)
