"""Charts of one result, drawn when asked for: how its samples are spread, and how its rounds went, beside the baseline's.

Bars count every sample. What is thinned, or lies beyond an axis, is said in the picture or under it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import vl_convert

from runs.charts import THEMES, look
from runs.models import Result
from runs.templatetags.figures import grouped

NAMES = ("samples", "rounds")
WIDTHS = {"samples": (630, 312), "rounds": (380, 272)}
"""Of the plot, pixels: on a wide page, on a narrow one."""
MOST_LINES = 300
"""Samples of one arm that are drawn one by one; of more, so many, evenly by rank, the smallest and largest among them."""
MOST_DOTS = 500
"""Rounds of one arm that are drawn one by one; of more, neighbours share a dot."""
MOST_JOINED = 120
"""Dots of more rounds are small and not joined by lines."""
FENCE = 3
"""An axis ends so many interquartile ranges outside the quartiles, as for the outliers of the table, ..."""
KEPT = 5
"""... but no more than so many percent of an arm's values lie beyond either end."""
LEAST_IQR = 0.002
"""Of the median: values that are all alike still need an axis."""
LEAST_SHARE = 0.05
"""Of the axis: where an arm would take less of one in microseconds, the axis is in percent."""
FEWEST_BINS, MOST_BINS = 12, 60
STEADY = 0.5
"""Percent: the axis of the rounds reaches at least so far, so that quiet rounds look quiet."""
DETAIL, BARS, LINES, MIDDLE, GAP, ROW = 16, (80, 34), (83, 93), 102, 18, 128
"""Heights within a row of the samples: what is written under the name, bars, lines, median, room below, all."""
SIGNED = "datum.value ? format(datum.value, '+~g') : '0'"

Axis = tuple[float, float]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Arm:
    """One kernel's rounds of samples, in microseconds."""

    name: str
    ink: str
    """Its colour's name in THEMES."""
    rounds: list[list[float]]
    low: float
    high: float
    """The interval of its median."""

    @cached_property
    def values(self) -> np.ndarray:
        return np.concatenate([np.asarray(ticks, dtype=float) for ticks in self.rounds])

    @cached_property
    def median(self) -> float:
        return float(np.median(self.values))

    @cached_property
    def quartiles(self) -> Axis:
        low, high = np.percentile(self.values, (25, 75))
        return float(low), float(high)

    @cached_property
    def medians(self) -> np.ndarray:
        """Of each round."""
        return np.asarray([np.median(ticks) for ticks in self.rounds])

    @cached_property
    def off(self) -> np.ndarray:
        """Each round's median in percent off the median of all rounds."""
        return percent_off(self.medians, float(np.median(self.medians)))

    @cached_property
    def reach(self) -> Axis:
        """The axis that shows this arm, its median's interval included."""
        low, high = within_fences(self.values, LEAST_IQR * self.median)
        return min(low, self.low), max(high, self.high)


def arms_of(result: Result, baseline: Result | None) -> list[Arm]:
    """What there is to draw: the baseline first, then the kernel; the baseline alone on its own page; or nothing."""
    if not any(result.ticks_ns or ()):
        return []
    pair = [(baseline, "ink"), (result, "accent")] if baseline and baseline.pk != result.pk else [(result, "ink")]
    return [_arm(one, ink) for one, ink in pair if one and any(one.ticks_ns or ())]


def _arm(result: Result, ink: str) -> Arm:
    rounds = [[tick / 1e3 for tick in ticks] for ticks in result.ticks_ns or () if ticks]
    middle = float(np.median([tick for ticks in rounds for tick in ticks]))
    low, high = (middle if end is None else end * 1e3 for end in (result.p50_low, result.p50_high))
    return Arm(result.kernel.name, ink, rounds, low, high)


def within_fences(values: np.ndarray, least_iqr: float) -> Axis:
    """From and to, without values that are few, far outside the quartiles, and would lengthen the axis by half."""
    q1, q3 = np.percentile(values, (25, 75))
    reach = FENCE * max(float(q3 - q1), least_iqr)
    least, most = float(values.min()), float(values.max())
    low = min(float(q1) - reach, float(np.percentile(values, KEPT, method="higher")))
    high = max(float(q3) + reach, float(np.percentile(values, 100 - KEPT, method="lower")))
    room = (high - low) / 2
    return least if least > low - room else low, most if most < high + room else high


def percent_off(values: Any, middle: float) -> Any:
    return 100 * (values - middle) / (middle or 1)


def spec_of(arms: Sequence[Arm], name: str, theme: str, narrow: bool = False, paired: bool = True) -> dict[str, Any]:
    """A Vega-Lite spec of the chart with this name. Not validated here, which would take as long as the rest."""
    chart = Samples(arms) if name == "samples" else Rounds(arms, paired)
    return look(chart.draw(WIDTHS[name][narrow], THEMES[theme]), THEMES[theme]).to_dict(validate=False)


def svg_of(spec: dict[str, Any]) -> str:
    return vl_convert.vegalite_to_svg(spec)


def said(arms: Sequence[Arm], paired: bool = True) -> dict[str, list[str]]:
    """Sentences under each chart: how much of the data it shows, how to read it, what lies beyond."""
    return {"samples": Samples(arms).said(), "rounds": Rounds(arms, paired).said()}


def _colour(arms: Sequence[Arm], colours: dict[str, str], **more: Any) -> Any:
    scale = alt.Scale(domain=[arm.name for arm in arms], range=[colours[arm.ink] for arm in arms])
    return alt.Color("kernel:N", scale=scale, **more)


def _numbers(*fields: str) -> list[Any]:
    return [alt.Tooltip(f"{field}:Q", format=",.5~g", title=field.replace("_", ", ")) for field in fields]


def _beyond(count: int, what: str, name: str, how_far: str) -> str:
    return f"{count:,} {what}{'s' * (count > 1)} of {name} lie{'s' * (count == 1)} beyond the axis, {how_far}."


# --- how the samples are spread ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Samples:
    """A row for each arm: bars that count all samples, a line for each of them, the median with its interval."""

    arms: Sequence[Arm]

    @cached_property
    def apart(self) -> bool:
        """Whether on an axis in microseconds one arm would be a mere spike: then it is in percent."""
        span = max(arm.reach[1] for arm in self.arms) - min(arm.reach[0] for arm in self.arms)
        return any(arm.reach[1] - arm.reach[0] < LEAST_SHARE * span for arm in self.arms)

    def place(self, arm: Arm, values: Any) -> Any:
        """Where values stand on the axis."""
        return percent_off(values, arm.median) if self.apart else values

    @cached_property
    def axis(self) -> Axis:
        """From and to, in the axis' unit, with some room."""
        ends = [[self.place(arm, end) for end in arm.reach] for arm in self.arms]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        room = 0.02 * (high - low) or LEAST_IQR * max(abs(high), 1)
        return low - room, high + room

    @cached_property
    def bins(self) -> int:
        """How many bars over the axis: half as wide as Freedman and Diaconis advise, for the lines below show the noise."""
        span = self.axis[1] - self.axis[0]
        widths = []
        for arm in self.arms:
            q1, q3 = (self.place(arm, quartile) for quartile in arm.quartiles)
            widths.append(max(q3 - q1, span / MOST_BINS) / len(arm.values) ** (1 / 3))
        return max(FEWEST_BINS, min(MOST_BINS, round(span / min(widths))))

    def bars(self, arm: Arm) -> Rows:
        """{"from", "to", "samples"} of each bar; the tallest of an arm is as high as its row allows."""
        counts, edges = np.histogram(self.place(arm, arm.values), bins=self.bins, range=self.axis)
        bottom, top = BARS
        scale = (bottom - top) / max(1, counts.max())
        ends = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        found = [
            {"from": left, "to": right, "samples": count, "top": bottom - scale * count} for left, right, count in ends
        ]
        return [bar | {"bottom": bottom} for bar in found if bar["samples"]]

    def lines(self, arm: Arm) -> Rows:
        """{"us", "round", "at"} of the samples that are drawn one by one."""
        where = np.repeat(np.arange(1, len(arm.rounds) + 1), [len(ticks) for ticks in arm.rounds])
        order = np.argsort(arm.values, kind="stable")
        if len(order) > MOST_LINES:
            order = order[np.linspace(0, len(order) - 1, MOST_LINES).round().astype(int)]
        found = zip(arm.values[order], where[order], self.place(arm, arm.values[order]), strict=True)
        top, bottom = LINES
        return [
            {"us": round(float(us), 4), "at": round(float(at), 4), "round": int(number), "top": top, "bottom": bottom}
            for us, number, at in found
            if self.axis[0] <= at <= self.axis[1]
        ]

    def middle(self, arm: Arm) -> Rows:
        """The median and its interval, on the axis and in microseconds."""
        low, high, median = (float(self.place(arm, value)) for value in (arm.low, arm.high, arm.median))
        own = {"us": arm.median, "low_us": arm.low, "high_us": arm.high}
        return [{"low": low, "high": high, "median": median, "top": BARS[1], "middle": MIDDLE} | own]

    def edges(self, arm: Arm) -> Rows:
        """What lies beyond the axis: {"at", "text", "side", "beyond", "farthest"}, at most one of each side."""
        at, (low, high) = self.place(arm, arm.values), self.axis
        found = []
        for values, end, side in ((arm.values[at < low], low, "left"), (arm.values[at > high], high, "right")):
            if len(values):
                word, farthest = ("down", values.min()) if side == "left" else ("up", values.max())
                how_far = f"{word} to {grouped(float(farthest))} us"
                text = f"{len(values):,} beyond, {how_far}"
                row = {"at": end, "text": text, "side": side, "beyond": len(values), "farthest": how_far}
                found.append(row | {"middle": MIDDLE})
        return found

    def words(self, arm: Arm) -> Rows:
        """Over an arm's row, under its name."""
        n, of = len(arm.values), len(arm.rounds)
        count = f"{n:,} samples" if n == of else f"{n:,} samples in {of:,} rounds"
        return [{"text": f"median {grouped(arm.median)} us, {count}", "top": 0, "bottom": DETAIL}]

    def rows(self, of: Callable[[Arm], Rows]) -> Rows:
        """The same of every arm, each in its own row of the picture."""
        found = []
        for number, arm in enumerate(self.arms):
            for row in of(arm):
                moved = {key: row[key] + number * ROW for key in ("top", "bottom", "middle") if key in row}
                found.append(row | moved | {"kernel": arm.name})
        return found

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
        upright = {"y": y("top:Q"), "y2": alt.Y2("bottom:Q"), "color": _colour(self.arms, colours, legend=None)}
        flat = {"y": y("middle:Q"), "color": upright["color"]}
        name = alt.Tooltip("kernel:N")
        return [
            bars.mark_rect(opacity=0.35, aria=False).encode(
                x=x("from:Q"), x2=alt.X2("to:Q"), **upright, tooltip=[name, alt.Tooltip("samples:Q"), *_numbers("from", "to")]
            ),
            lines.mark_rule(opacity=0.45, strokeWidth=1, aria=False).encode(
                x=x("at:Q"), **upright, tooltip=[name, *_numbers("us"), alt.Tooltip("round:Q")]
            ),
            middles.mark_rule(strokeWidth=6, opacity=0.35, strokeCap="round").encode(
                x=x("low:Q"), x2=alt.X2("high:Q"), **flat
            ),
            middles.mark_rule(strokeWidth=1.5).encode(x=x("median:Q"), **upright | {"y2": alt.Y2("middle:Q")}),
            middles.mark_point(filled=True, size=55, opacity=1).encode(
                x=x("median:Q"), **flat, tooltip=[name, *_numbers("us", "low_us", "high_us")]
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
        """A triangle and a number at the edge for samples beyond the axis."""
        layers = []
        rows = self.rows(self.edges)
        for side, dx in (("left", 8), ("right", -8)):
            if mine := [row for row in rows if row["side"] == side]:
                base = alt.Chart(pd.DataFrame(mine)).encode(x=x("at:Q"), y=y("middle:Q"))
                point = base.mark_point(filled=True, size=70, opacity=1, shape=f"triangle-{side}")
                words = base.mark_text(align=side, dx=dx, color=colours["quiet"])
                layers += [
                    point.encode(color=_colour(self.arms, colours, legend=None)),
                    words.encode(text=alt.Text("text:N")),
                ]
        return layers

    def said(self) -> list[str]:
        sentences = [
            f"Bars count every sample; lines are {self._said_of_lines()}.",
            "The point is the median, the pale bar its interval.",
        ]
        if self.apart:
            sentences.append(
                "The two are too far apart for one axis in microseconds: each is in percent of its own median."
            )
        for arm in self.arms:
            sentences += [_beyond(edge["beyond"], "sample", arm.name, edge["farthest"]) for edge in self.edges(arm)]
        return sentences

    def _said_of_lines(self) -> str:
        thinned = [arm for arm in self.arms if len(arm.values) > MOST_LINES]
        if not thinned:
            return "every sample"
        some = " and ".join(f"{MOST_LINES:,} of {len(arm.values):,} samples of {arm.name}" for arm in thinned)
        return f"{some}, evenly by rank" + (", and every sample of the other" if len(thinned) < len(self.arms) else "")


# --- how the rounds went ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rounds:
    """Each round's median in percent off the arm's own: what moves both arms alike is the device, not the kernel."""

    arms: Sequence[Arm]
    paired: bool
    """False: one arm after the other, and each round is a single call."""

    @cached_property
    def count(self) -> int:
        return max(len(arm.rounds) for arm in self.arms)

    @cached_property
    def group(self) -> int:
        """How many neighbouring rounds share a dot."""
        return math.ceil(self.count / MOST_DOTS)

    @cached_property
    def axis(self) -> Axis:
        """From and to, in percent."""
        ends = [within_fences(arm.off, 100 * LEAST_IQR) for arm in self.arms]
        return min(-STEADY, *(low for low, _ in ends)), max(STEADY, *(high for _, high in ends))

    def ticks(self) -> list[int]:
        """At most six numbers of rounds: every one, every second, fifth, tenth, ..."""
        steps = (lead * 10**zeros for zeros in range(9) for lead in (1, 2, 5))
        step = next(step for step in steps if self.count <= 6 * step)
        return list(range(step, self.count + 1, step))

    def dots(self, arm: Arm) -> Rows:
        """{"round", "us", "off", "least", "most"}: a round's median and how far it, or its group, strays."""
        found = []
        for first in range(0, len(arm.off), self.group):
            part = arm.off[first : first + self.group]
            us, number = float(np.median(arm.medians[first : first + self.group])), first + (len(part) + 1) / 2
            off, least, most = float(np.median(part)), float(part.min()), float(part.max())
            found.append(
                {"kernel": arm.name, "round": number, "us": round(us, 4), "off": off, "least": least, "most": most}
            )
        return found

    def frame(self) -> pd.DataFrame:
        """All dots, with their places on the axis."""
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
        places = {"x": x, "color": _colour(self.arms, colours)}
        many = self.count > MOST_JOINED
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
        tooltip = [alt.Tooltip("kernel:N"), alt.Tooltip("round:Q"), *_numbers("us")]
        return base.mark_point(filled=True, opacity=0.6 if small else 0.9, aria=False).encode(
            shape=alt.Shape("edge:N", scale=shapes, legend=None),
            size=alt.condition("datum.edge", alt.value(70), alt.value(8 if small else 18)),
            tooltip=[*tooltip, alt.Tooltip("off:Q", format="+.2f", title="off, %")],
        )

    def said(self) -> list[str]:
        what = "round" if self.paired else "call"
        one = "Each dot is the median of a round." if self.paired else "Each dot is a call."
        many = f"Each dot is the median of {self.group} {what}s, and the line through it spans them."
        sentences = [many if self.group > 1 else one]
        if not self.paired:
            sentences.append("The kernels ran one after the other: the same number is not the same moment.")
        elif len(self.arms) > 1:
            sentences.append("What moves both alike is the device, and cancels in the speedup.")
        low, high = self.axis
        for arm in self.arms:
            if count := int(((arm.off < low) | (arm.off > high)).sum()):
                farthest = arm.off[np.abs(arm.off).argmax()]
                sentences.append(_beyond(count, what, arm.name, f"as far as {farthest:+.3g}%"))
        return sentences
