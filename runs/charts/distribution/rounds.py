"""The median of each round: shows drift, steps and single bad rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from runs.charts.distribution.arms import LEAST_IQR, SIGNED, Arm, Axis, Rows, beyond, colour_of, numbers, within_fences

MOST_DOTS = 500
"""Most dots of one arm; with more rounds, neighbours share a dot."""
MOST_JOINED_DOTS = 120
"""With more rounds, dots are small and not joined."""
STEADY = 0.5
"""Least extent of the axis in percent, so that quiet rounds look quiet."""


@dataclass(frozen=True)
class Rounds:
    """Each round's median, in percent off the arm's own: movement in both arms is the device."""

    arms: Sequence[Arm]
    paired: bool
    """False: one arm after the other; each round is a single call."""

    @cached_property
    def count(self) -> int:
        return max(len(arm.rounds) for arm in self.arms)

    @cached_property
    def group(self) -> int:
        """Neighbouring rounds per dot."""
        return math.ceil(self.count / MOST_DOTS)

    @cached_property
    def axis(self) -> Axis:
        """(from, to) in percent."""
        ends = [within_fences(arm.off, 100 * LEAST_IQR) for arm in self.arms]
        return min(-STEADY, *(low for low, _ in ends)), max(STEADY, *(high for _, high in ends))

    def ticks(self) -> list[int]:
        """At most six round numbers: every one, every second, fifth, tenth, ..."""
        steps = (lead * 10**zeros for zeros in range(9) for lead in (1, 2, 5))
        step = next(step for step in steps if self.count <= 6 * step)
        return list(range(step, self.count + 1, step))

    def dots(self, arm: Arm) -> Rows:
        """{"round", "us", "off", "least", "most"}: a round's median, and the range of its group."""
        dots = []
        for first in range(0, len(arm.off), self.group):
            part = arm.off[first : first + self.group]
            us, number = float(np.median(arm.medians[first : first + self.group])), first + (len(part) + 1) / 2
            off, least, most = float(np.median(part)), float(part.min()), float(part.max())
            dots.append(
                {"kernel": arm.name, "round": number, "us": round(us, 4), "off": off, "least": least, "most": most}
            )
        return dots

    def frame(self) -> pd.DataFrame:
        """All dots, with their positions on the axis."""
        low, high = self.axis
        data = pd.DataFrame([dot for arm in self.arms for dot in self.dots(arm)])
        data["at"], data["from"], data["to"] = (data[name].clip(low, high) for name in ("off", "least", "most"))
        data["edge"] = np.select([data.off < low, data.off > high], ["down", "up"], "")
        spans = ["from", "to"] if self.group > 1 else []
        return data[["kernel", "round", "us", "off", "at", "edge", *spans]].round(4)

    def draw(self, width: int, colours: dict[str, str]) -> Any:
        title = "off its own median, %"
        scale = alt.Scale(domain=list(self.axis), nice=False, zero=False, padding=6)
        across = alt.Scale(domain=[1, max(2, self.count)], nice=False, padding=6)
        axis = alt.Axis(values=self.ticks(), grid=False, format=",d")
        x = alt.X("round:Q", scale=across, title="round" if self.paired else "call", axis=axis)
        y = alt.Y("at:Q", scale=scale, title=title, axis=alt.Axis(labelExpr=SIGNED, tickCount=6))
        places = {"x": x, "color": colour_of(self.arms, colours)}
        many = self.count > MOST_JOINED_DOTS
        base, zero = alt.Chart(self.frame()), alt.Chart(pd.DataFrame([{"zero": 0}]))
        layers = [
            zero.mark_rule(color=colours["quiet"], strokeWidth=1).encode(y=alt.Y("zero:Q", scale=scale, title=title))
        ]
        if self.group > 1:
            span = {"y": alt.Y("from:Q", scale=scale, title=title), "y2": alt.Y2("to:Q")}
            layers.append(base.mark_rule(opacity=0.3, strokeWidth=1, aria=False).encode(**places, **span))
        if not many:
            layers.append(base.mark_line(strokeWidth=1, opacity=0.5).encode(**places, y=y))
        layers.append(self._points(base, small=many).encode(**places, y=y))
        return alt.layer(*layers).properties(width=width, height=206)

    def _points(self, base: Any, small: bool) -> Any:
        shapes = alt.Scale(domain=["", "up", "down"], range=["circle", "triangle-up", "triangle-down"])
        tooltip = [alt.Tooltip("kernel:N"), alt.Tooltip("round:Q"), *numbers("us")]
        return base.mark_point(filled=True, opacity=0.6 if small else 0.9, aria=False).encode(
            shape=alt.Shape("edge:N", scale=shapes, legend=None),
            size=alt.condition("datum.edge", alt.value(70), alt.value(8 if small else 18)),
            tooltip=[*tooltip, alt.Tooltip("off:Q", format="+.2f", title="off, %")],
        )

    def captions(self) -> list[str]:
        what = "round" if self.paired else "call"
        one = "Each dot is the median of a round." if self.paired else "Each dot is a call."
        many = f"Each dot is the median of {self.group} {what}s, and the line through it spans them."
        sentences = [many if self.group > 1 else one]
        if not self.paired:
            sentences.append("The kernels ran one after the other: equal round numbers are different times.")
        elif len(self.arms) > 1:
            sentences.append("Drift of the device moves both. It cancels in the speedup.")
        low, high = self.axis
        for arm in self.arms:
            if count := int(((arm.off < low) | (arm.off > high)).sum()):
                farthest = float(f"{arm.off[np.abs(arm.off).argmax()]:.3g}")
                sentences.append(beyond(count, what, arm.name, f"as far as {farthest:+,.9g}%"))
        return sentences
