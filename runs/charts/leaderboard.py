"""Charts of the leaderboard: the history of a record, and how often each kernel is how many times as fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from runs.charts.theme import theme
from runs.queries.leaders import Curve, Placed

WIDTH, HEIGHT = 290, 170
MOST_CURVES = 4
"""Kernels that are drawn; the table beside the chart has all."""
WIDEST = 4.0
"""Largest ratio on the axis."""
LABELS_AT = (0.85, 0.6, 0.38, 0.16)
"""Heights of the names, one for each curve, so that none covers another."""


def _named(base: Any, colours: dict[str, str], **mark: Any) -> Any:
    """Text on a halo in the panel's colour."""
    halo = {"stroke": colours["panel"], "strokeWidth": 4, "strokeJoin": "round", "color": colours["panel"]}
    return base.mark_text(**mark | halo, aria=False) + base.mark_text(**mark)


def record(steps: Sequence[Placed], baseline: str, colours: dict[str, str]) -> Any:
    """The lead of each record over the baseline, by date; None without a record."""
    if not steps:
        return None
    data = pd.DataFrame(
        {
            "when": [step.point.started_at or step.point.created_at for step in steps],
            "ratio": [step.ratio.ratio for step in steps],
            "low": [step.ratio.low for step in steps],
            "high": [step.ratio.high for step in steps],
            "name": [f"{step.point.kernel} {(step.point.sha256 or '')[:6]}, {step.ratio.ratio:.2f}x" for step in steps],
        }
    )
    data["when"] = pd.to_datetime(data.when, utc=True).dt.strftime("%Y-%m-%dT%H:%M:%S")
    low, high = min(1.0, data.low.min()), data.high.max()
    room = 0.12 * (high - low) or 0.05
    reach = alt.Scale(domain=[low - room, high + 2 * room], nice=False)
    x = alt.X("when:T", axis=alt.Axis(title=None, format="%d %b", tickCount=4, grid=False, labelOverlap=True))
    y = alt.Y(
        "ratio:Q",
        scale=reach,
        axis=alt.Axis(title=None, labelExpr="format(datum.value, '.2f') + 'x'", tickCount=4),
    )
    base = alt.Chart(data).encode(x=x)
    one = alt.Chart(pd.DataFrame({"ratio": [1.0], "name": [f"as {baseline}"]})).encode(y=y)
    ends = alt.Chart(data.iloc[[-1]]).encode(x=x, y=y, text="name:N")
    chart = (
        one.mark_rule(color=colours["other"])
        + _named(one.encode(text="name:N", x=alt.XValue(2)), colours, align="left", dy=8, color=colours["quiet"])
        + base.mark_rule(color=colours["accent"], opacity=0.4, strokeWidth=4).encode(
            y=alt.Y("low:Q", scale=reach), y2="high:Q"
        )
        + base.mark_line(interpolate="step-after", color=colours["accent"], strokeWidth=2).encode(y=y)
        + base.mark_point(filled=True, size=45, color=colours["accent"], opacity=1).encode(y=y, tooltip=["name:N"])
        + _named(ends, colours, align="right" if len(steps) > 1 else "center", dy=-12)
    )
    return theme(chart.properties(width=WIDTH, height=HEIGHT), colours)


def fast(curves: Sequence[Curve], colours: dict[str, str]) -> Any:
    """The share of places on which a kernel is at least p times as fast; None without a kernel."""
    drawn = [curve for curve in curves[:MOST_CURVES] if curve.ratios]
    if not drawn:
        return None
    most = min(WIDEST, max(max(curve.ratios) for curve in drawn))
    least = max(0.0, min(1.0, *(min(curve.ratios) for curve in drawn)) - 0.05)
    rows, names = [], []
    for number, curve in enumerate(drawn):
        colour = colours["accent"] if number == 0 else colours["ink"] if number == 1 else colours["other"]
        points = [least, *(ratio for ratio in curve.ratios if ratio <= most)]
        rows += [(curve.kernel, x, curve.share(x), colour) for x in points]
        rows.append(
            (curve.kernel, max(points), sum(ratio > max(points) for ratio in curve.ratios) / curve.places, colour)
        )
        height = LABELS_AT[number]
        beside = max((x for x in points if curve.share(x) >= height), default=least)
        names.append((curve.kernel, beside, height, colour))
    columns = ["kernel", "p", "share", "colour"]
    data, named = pd.DataFrame(rows, columns=columns), pd.DataFrame(names, columns=columns)
    scale = alt.Scale(domain=[least, most + 0.35 * (most - least)], nice=False)
    x = alt.X(
        "p:Q",
        scale=scale,
        axis=alt.Axis(title=None, grid=False, tickCount=5, labelExpr="format(datum.value, '.1f') + 'x'"),
    )
    y = alt.Y("share:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(title=None, format=".0%", tickCount=4))
    colour = alt.Color("colour:N", scale=None)
    one = alt.Chart(pd.DataFrame({"p": [1.0]})).mark_rule(color=colours["other"]).encode(x=x)
    lines = (
        alt.Chart(data)
        .mark_line(interpolate="step-before", strokeWidth=1.6)
        .encode(x=x, y=y, detail="kernel:N", color=colour)
    )
    labels = alt.Chart(named).encode(x=x, y=y, text="kernel:N")
    halo = {"align": "left", "dx": 5, "limit": 110}
    behind = labels.mark_text(**halo, stroke=colours["panel"], strokeWidth=4, strokeJoin="round", aria=False)
    chart = one + lines + behind + labels.mark_text(**halo).encode(color=colour)
    return theme(chart.properties(width=WIDTH, height=HEIGHT), colours)
