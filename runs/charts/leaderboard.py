"""Charts of the leaderboard: the history of a record, and how often each kernel is how many times as fast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from runs.charts.row_labels import text_width
from runs.charts.scales import ratio_ticks
from runs.charts.theme import theme
from runs.queries.coverage import Curve
from runs.queries.leaders import Placed

WIDTH, HEIGHT = 290, 170
MOST_CURVES = 4
"""Kernels that are drawn; the table beside the chart has all."""
WIDEST = 16.0
"""Largest ratio on the axis; its inverse is the smallest."""
ROOM = 0.2
"""Room for names behind the last ratio, as a share of the axis before it."""
HEIGHTS = (0.85, 0.6, 0.38, 0.16, 0.93, 0.72, 0.5, 0.27, 0.07)
"""Heights at which a name may stand beside its curve, the first ones rather."""
LETTERS, LINE, GAP = 110, 13, 6
"""Pixels: the most room of a name, its height, and the room between it and its curve."""


class Axis(NamedTuple):
    """A logarithmic axis of ratios."""

    low: float
    high: float

    @property
    def ticks(self) -> list[float]:
        return ratio_ticks(self.low, self.high, WIDTH // 42)

    def px(self, ratio: float) -> float:
        return WIDTH * math.log(ratio / self.low) / math.log(self.high / self.low)

    def ratio(self, px: float) -> float:
        return self.low * math.exp(px / WIDTH * math.log(self.high / self.low))


class Name(NamedTuple):
    """Where the name of a curve stands: its mark on the curve, and the text's begin in pixels."""

    curve: Curve
    ratio: float
    height: float
    begin: float

    @property
    def end(self) -> float:
        return self.begin + min(LETTERS, text_width(self.curve.kernel))

    def is_on(self, other: Name) -> bool:
        apart = abs(self.height - other.height) * HEIGHT
        return apart < LINE and self.begin < other.end and other.begin < self.end

    def is_crossed(self, curve: Curve, axis: Axis) -> bool:
        """Whether a curve, which falls from left to right, runs through the name."""
        half = LINE / 2 / HEIGHT
        first, last = (curve.share(axis.ratio(px)) for px in (self.begin, self.end))
        return first >= self.height - half and last <= self.height + half


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
    axis = _axis_of(drawn)
    tones = [colours["accent"], colours["ink"], *[colours["other"]] * MOST_CURVES][: len(drawn)]
    x = alt.X(
        "p:Q",
        scale=alt.Scale(type="log", domain=list(axis), nice=False),
        axis=alt.Axis(title="p", grid=False, values=axis.ticks, labelExpr="datum.value + 'x'", labelPadding=6),
    )
    y = alt.Y(
        "share:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(title="of the workloads", format=".0%", tickCount=4)
    )
    colour = alt.Color("colour:N", scale=None)
    one = alt.Chart(pd.DataFrame({"p": [1.0]})).mark_rule(color=colours["other"]).encode(x=x)
    lines = (
        alt.Chart(_steps(drawn, tones, axis))
        .mark_line(interpolate="step-before", strokeWidth=1.6)
        .encode(x=x, y=y, detail="kernel:N", color=colour)
    )
    names = _names(drawn, axis)
    named = pd.DataFrame(
        [
            (name.curve.kernel, name.ratio, name.height, tone, name.begin)
            for name, tone in zip(names, tones, strict=True)
        ],
        columns=["kernel", "p", "share", "colour", "begin"],
    )
    marks = alt.Chart(named).mark_point(filled=True, size=22, opacity=1, aria=False).encode(x=x, y=y, color=colour)
    begin = alt.X("begin:Q", scale=alt.Scale(domain=[0, WIDTH], nice=False), axis=None)
    labels = alt.Chart(named).encode(x=begin, y=y, text="kernel:N")
    text = {"align": "left", "baseline": "middle", "limit": LETTERS}
    over = alt.layer(_named(labels, colours, **text, color=colours["ink"]))
    chart = alt.layer(alt.layer(one, lines, marks), over).resolve_scale(x="independent")
    return theme(chart.properties(width=WIDTH, height=HEIGHT), colours)


def _axis_of(curves: Sequence[Curve]) -> Axis:
    """From the smallest ratio to the largest, 1 among them, no farther than WIDEST; and room for names behind the last."""
    ratios = [ratio for curve in curves for ratio in curve.ratios]
    low, high = max(1 / WIDEST, min(0.95, *ratios)), min(WIDEST, max(1.05, *ratios))
    return Axis(low / 1.02, WIDEST if high == WIDEST else high * 1.02 * (high / low) ** ROOM)


def _steps(curves: Sequence[Curve], tones: Sequence[str], axis: Axis) -> pd.DataFrame:
    """The corners of each curve, to the end of the axis."""
    rows = []
    for curve, tone in zip(curves, tones, strict=True):
        inside = sorted(ratio for ratio in curve.ratios if axis.low < ratio < axis.high)
        rows += [(curve.kernel, p, curve.share(p), tone) for p in (axis.low, *inside, axis.high)]
    return pd.DataFrame(rows, columns=["kernel", "p", "share", "colour"])


def _names(curves: Sequence[Curve], axis: Axis) -> list[Name]:
    """A place for the name of each curve, on as few curves and names as possible."""
    placed: list[Name] = []
    for curve in curves:
        others = list(placed)

        def cost(name: Name, others: list[Name] = others) -> int:
            return sum(name.is_crossed(one, axis) for one in curves) + 3 * sum(name.is_on(one) for one in others)

        placed.append(min(_beside(curve, axis), key=cost))
    return placed


def _beside(curve: Curve, axis: Axis) -> list[Name]:
    """The places at the right of a curve, then those at its left, inside the chart."""
    found = []
    wide = min(LETTERS, text_width(curve.kernel))
    for side in (GAP, -GAP - wide):
        for ratio, height in _spots(curve, axis):
            begin = min(max(2.0, axis.px(ratio) + side), WIDTH - wide)
            found.append(Name(curve, ratio, height, begin))
    return found


def _spots(curve: Curve, axis: Axis) -> list[tuple[float, float]]:
    """(ratio, share) of points on a curve: HEIGHTS that it passes inside the axis, its highest point, and its end."""
    inside = [ratio for ratio in curve.ratios if axis.low < ratio < axis.high]
    top, end = curve.share(axis.low), curve.share(axis.high)
    spots = [
        (max(ratio for ratio in inside if curve.share(ratio) >= height), height)
        for height in HEIGHTS
        if end < height <= top and any(curve.share(ratio) >= height for ratio in inside)
    ]
    spots.append((min(inside, default=axis.low), top))
    return [*spots, (axis.high, end)] if end else spots
