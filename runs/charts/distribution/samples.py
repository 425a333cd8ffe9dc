"""The distribution of samples: bars that count every sample, a line per sample, the median with its interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from runs.charts.distribution.arms import LEAST_IQR, SIGNED, Arm, Axis, Rows, beyond, colour_of, numbers, percent_off
from runs.templatetags.figures import grouped

MOST_LINES = 300
"""Most lines of one arm. Of more samples this many are drawn, evenly spaced by rank, with the smallest and largest."""
LEAST_SHARE = 0.05
"""Least share of an axis in microseconds; if an arm takes less, the axis is in percent."""
FEWEST_BINS, MOST_BINS = 12, 60
DETAIL, BARS, LINES, MIDDLE, GAP, ROW = 16, (80, 34), (83, 93), 102, 18, 128
"""Heights in a row: detail text, bars, lines, median, gap, total."""


@dataclass(frozen=True)
class Samples:
    """A row per arm: bars that count all samples, a line per sample, the median with its interval."""

    arms: Sequence[Arm]

    @cached_property
    def apart(self) -> bool:
        """Whether an axis in microseconds would squeeze one arm into a spike: then percent."""
        span = max(arm.reach[1] for arm in self.arms) - min(arm.reach[0] for arm in self.arms)
        return any(arm.reach[1] - arm.reach[0] < LEAST_SHARE * span for arm in self.arms)

    def place(self, arm: Arm, values: Any) -> Any:
        """Positions of values on the axis."""
        return percent_off(values, arm.median) if self.apart else values

    @cached_property
    def axis(self) -> Axis:
        """(from, to) in the axis' unit, with some room."""
        ends = [[self.place(arm, end) for end in arm.reach] for arm in self.arms]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        room = 0.02 * (high - low) or LEAST_IQR * max(abs(high), 1)
        return low - room, high + room

    @cached_property
    def bins(self) -> int:
        """Number of bars over the axis: half as wide as Freedman and Diaconis advise, because the lines below show the
        noise."""
        span = self.axis[1] - self.axis[0]
        widths = []
        for arm in self.arms:
            q1, q3 = (self.place(arm, quartile) for quartile in arm.quartiles)
            widths.append(max(q3 - q1, span / MOST_BINS) / len(arm.values) ** (1 / 3))
        return max(FEWEST_BINS, min(MOST_BINS, round(span / min(widths))))

    def bars(self, arm: Arm) -> Rows:
        """{"from", "to", "samples"} of each bar; an arm's tallest bar fills its row."""
        counts, edges = np.histogram(self.place(arm, arm.values), bins=self.bins, range=self.axis)
        bottom, top = BARS
        scale = (bottom - top) / max(1, counts.max())
        ends = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        bars = [
            {"from": left, "to": right, "samples": count, "top": bottom - scale * count} for left, right, count in ends
        ]
        return [bar | {"bottom": bottom} for bar in bars if bar["samples"]]

    def lines(self, arm: Arm) -> Rows:
        """{"us", "round", "at"} of the samples drawn as lines."""
        where = np.repeat(np.arange(1, len(arm.rounds) + 1), [len(ticks) for ticks in arm.rounds])
        order = np.argsort(arm.values, kind="stable")
        if len(order) > MOST_LINES:
            order = order[np.linspace(0, len(order) - 1, MOST_LINES).round().astype(int)]
        lines = zip(arm.values[order], where[order], self.place(arm, arm.values[order]), strict=True)
        top, bottom = LINES
        return [
            {"us": round(float(us), 4), "at": round(float(at), 4), "round": int(number), "top": top, "bottom": bottom}
            for us, number, at in lines
            if self.axis[0] <= at <= self.axis[1]
        ]

    def middle(self, arm: Arm) -> Rows:
        """The median and its interval, on the axis and in microseconds."""
        low, high, median = (float(self.place(arm, value)) for value in (arm.low, arm.high, arm.median))
        own = {"us": arm.median, "low_us": arm.low, "high_us": arm.high}
        return [{"low": low, "high": high, "median": median, "top": BARS[1], "middle": MIDDLE} | own]

    def edges(self, arm: Arm) -> Rows:
        """Samples beyond the axis: {"at", "text", "side", "beyond", "farthest"}, at most one per side."""
        at, (low, high) = self.place(arm, arm.values), self.axis
        edges = []
        for values, end, side in ((arm.values[at < low], low, "left"), (arm.values[at > high], high, "right")):
            if len(values):
                word, farthest = ("down", values.min()) if side == "left" else ("up", values.max())
                how_far = f"{word} to {grouped(float(farthest))} us"
                text = f"{len(values):,} beyond, {how_far}"
                row = {"at": end, "text": text, "side": side, "beyond": len(values), "farthest": how_far}
                edges.append(row | {"middle": MIDDLE})
        return edges

    def words(self, arm: Arm) -> Rows:
        """The text over an arm's row, under its name."""
        n, of = len(arm.values), len(arm.rounds)
        count = f"{n:,} samples" if n == of else f"{n:,} samples in {of:,} rounds"
        return [{"text": f"median {grouped(arm.median)} µs, {count}", "top": 0, "bottom": DETAIL}]

    def rows(self, of: Callable[[Arm], Rows]) -> Rows:
        """Rows of every arm, each with its position in the chart."""
        rows = []
        for number, arm in enumerate(self.arms):
            for row in of(arm):
                moved = {key: row[key] + number * ROW for key in ("top", "bottom", "middle") if key in row}
                rows.append(row | moved | {"kernel": arm.name})
        return rows

    def draw(self, width: int, colours: dict[str, str]) -> Any:
        height = ROW * len(self.arms) - GAP
        numbers = {"labelExpr": SIGNED} if self.apart else {"format": ",.9~g"}
        axis = alt.Axis(tickCount=width // 100, labelOverlap=True, **numbers)
        title = "percent off its own median" if self.apart else "microseconds"
        across = alt.Scale(domain=list(self.axis), nice=False, zero=False)
        down = alt.Scale(domain=[0, height], range=[0, height])

        def x(field: str) -> Any:
            return alt.X(field, scale=across, axis=axis, title=title)

        def y(field: str) -> Any:
            return alt.Y(field, scale=down, axis=None)

        layers = [*self._marks(x, y, colours), *self._words(y, width, colours), *self._edges(x, y, colours)]
        return alt.layer(*layers).properties(width=width, height=height)

    def _marks(self, x: Any, y: Any, colours: dict[str, str]) -> list[Any]:
        bars, lines, middles = (alt.Chart(pd.DataFrame(self.rows(of))) for of in (self.bars, self.lines, self.middle))
        upright = {"y": y("top:Q"), "y2": alt.Y2("bottom:Q"), "color": colour_of(self.arms, colours, legend=None)}
        flat = {"y": y("middle:Q"), "color": upright["color"]}
        name = alt.Tooltip("kernel:N")
        return [
            bars.mark_rect(opacity=0.35, aria=False).encode(
                x=x("from:Q"), x2=alt.X2("to:Q"), **upright, tooltip=[name, alt.Tooltip("samples:Q"), *numbers("from", "to")]
            ),
            lines.mark_rule(opacity=0.45, strokeWidth=1, aria=False).encode(
                x=x("at:Q"), **upright, tooltip=[name, *numbers("us"), alt.Tooltip("round:Q")]
            ),
            middles.mark_rule(strokeWidth=6, opacity=0.35, strokeCap="round").encode(
                x=x("low:Q"), x2=alt.X2("high:Q"), **flat
            ),
            middles.mark_rule(strokeWidth=1.5).encode(x=x("median:Q"), **upright | {"y2": alt.Y2("middle:Q")}),
            middles.mark_point(filled=True, size=55, opacity=1).encode(
                x=x("median:Q"), **flat, tooltip=[name, *numbers("us", "low_us", "high_us")]
            ),
        ]  # fmt: skip

    def _words(self, y: Any, width: int, colours: dict[str, str]) -> list[Any]:
        words = alt.Chart(pd.DataFrame(self.rows(self.words)))
        left = {"align": "left", "baseline": "top", "limit": width}
        name, detail = (
            words.mark_text(**left, fontSize=12, fontWeight=600),
            words.mark_text(**left, color=colours["quiet"]),
        )
        return [
            name.encode(x=alt.XValue(0), y=y("top:Q"), text=alt.Text("kernel:N")),
            detail.encode(x=alt.XValue(0), y=y("bottom:Q"), text=alt.Text("text:N")),
        ]

    def _edges(self, x: Any, y: Any, colours: dict[str, str]) -> list[Any]:
        """A triangle and a number at the edge for samples beyond it."""
        layers = []
        rows = self.rows(self.edges)
        for side, dx in (("left", 8), ("right", -8)):
            if mine := [row for row in rows if row["side"] == side]:
                base = alt.Chart(pd.DataFrame(mine)).encode(x=x("at:Q"), y=y("middle:Q"))
                point = base.mark_point(filled=True, size=70, opacity=1, shape=f"triangle-{side}")
                words = base.mark_text(align=side, dx=dx, color=colours["quiet"])
                layers += [
                    point.encode(color=colour_of(self.arms, colours, legend=None)),
                    words.encode(text=alt.Text("text:N")),
                ]
        return layers

    def captions(self) -> list[str]:
        sentences = [
            f"Bars: histogram. Thin lines: {self._lines_shown()}.",
            "Point: median, with its interval.",
        ]
        if self.apart:
            sentences.append(
                "The two differ too much for one axis in microseconds: each is in percent of its own median."
            )
        for arm in self.arms:
            sentences += [beyond(edge["beyond"], "sample", arm.name, edge["farthest"]) for edge in self.edges(arm)]
        return sentences

    def _lines_shown(self) -> str:
        thinned = [arm for arm in self.arms if len(arm.values) > MOST_LINES]
        if not thinned:
            return "one for each sample"
        some = " and ".join(f"{MOST_LINES:,} of {len(arm.values):,} samples of {arm.name}" for arm in thinned)
        return f"{some}, evenly spaced by rank" + (
            ", and every sample of the other" if len(thinned) < len(self.arms) else ""
        )
