"""Time against a size that varies while the others are fixed, on logarithmic axes: a line for each kernel."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import altair as alt
import pandas as pd

from kernels.analysis import scaling
from kernels.analysis.scaling import Growth, Point, Series, Time
from kernels.catalog import operations
from kernels.contract.arm_result import COUNT_NOWHERE
from kernels.contract.events import Measured
from kernels.workload import Workload
from runs.charts.scales import log_ticks, reach
from runs.charts.theme import in_pixels, written

NAME = "scaling_"
WIDTHS = (640, 326)
"""Whole widths in pixels: (wide page, narrow page)."""
HEIGHT, TOP, BOTTOM, LEFT, RIGHT = 250, 14, 32, 56, 104
MOST_KERNELS = 8
APART = 15
LETTERS = {"kv_heads": "Hkv"}
"""Letters of sizes whose titles have none."""
UNKNOWN = 1.0
"""An exponent whose interval is as wide as this to each side is called not certain."""


@dataclass(frozen=True)
class Scaling:
    """One series of a run with what its kernels did on it."""

    of: Series
    growths: list[Growth]
    leader: str
    baseline: str
    shown: dict[str, str]
    """Size -> its letter, such as {"seq_len": "S"}."""

    @property
    def name(self) -> str:
        """Of its chart."""
        return name_of(self.of)

    @property
    def title(self) -> str:
        return "Time against " + " and ".join(self.letter(name) for name in self.of.varies)

    def letter(self, name: str) -> str:
        return self.shown.get(name, name)

    @property
    def sentence(self) -> str:
        return scaling.sentence(self.of, self.growths, self.leader, self.baseline, self.shown)

    @property
    def fixed(self) -> str:
        """What all its workloads share: "B=4 H=16 D=64"."""
        numbers = {name: value for name, value in self.of.fixed.items() if isinstance(value, int)}
        flags = [name for name, value in numbers.items() if value is True]
        sizes = [f"{self.letter(name)}={value}" for name, value in numbers.items() if not isinstance(value, bool)]
        return " ".join([*sizes, *flags])

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """The table: what each kernel's time does, the leader and the baseline first."""
        first = [self.leader, self.baseline]
        order = sorted(
            self.growths, key=lambda one: (first.index(one.kernel) if one.kernel in first else 2, one.time.ratio)
        )
        return [
            {
                "kernel": one.kernel,
                "grows": scaling.grown(one.time),
                "exponent": self._exponent(one),
                "bound": self._bound(one),
            }
            for one in order
        ]

    def _exponent(self, one: Growth) -> str:
        """Not certain where so few sizes, or such noise, say nothing about it."""
        return (
            f"{one.exponent:.2f} \N{PLUS-MINUS SIGN}{one.uncertain:.2f}" if one.uncertain < UNKNOWN else "not certain"
        )

    def _bound(self, one: Growth) -> str:
        if one.flat_below is None:
            return "grows more than the work" if one.is_worse else ""
        what = "latency-bound" if one.is_latency else "hardly grows"
        return (
            f"{what} at every size"
            if one.flat_everywhere
            else f"{what} below {scaling.named(one.flat_below, self.of, self.shown)}"
        )


def name_of(one: Series) -> str:
    return NAME + "-".join(one.varies)


def planned(workloads: Sequence[Workload]) -> list[str]:
    """Names of the charts that a run of these workloads may have."""
    return [name_of(one) for one in scaling.series([_point(workload, {}) for workload in workloads])]


def scalings(measured: Sequence[Measured], leader: str) -> list[Scaling]:
    """What the results of one operation say about growth, for each size that varies."""
    points = [_point(m.workload, _times(m), m.mode) for m in measured if m.workload.known_problem]
    found = []
    for one in scaling.series([point for point in points if point.times]):
        if growths := scaling.growths(one):
            baseline = measured[0].baseline
            found.append(Scaling(one, growths, leader or baseline, baseline, letters(measured[0].workload.operation)))
    return found


def _times(m: Measured) -> dict[str, Time]:
    """Kernel -> its time, if it stands."""
    return {
        arm.kernel: Time(arm.p50_ms, arm.p50_low_ms, arm.p50_high_ms)
        for arm in m.results
        if arm.status == "ok" and arm.p50_ms and arm.p50_low_ms and arm.p50_high_ms
        and getattr(arm, "verdict", None) not in COUNT_NOWHERE
    }  # fmt: skip


def _point(workload: Workload, times: dict[str, Time], mode: str = "") -> Point:
    """Its work: FLOPs, or bytes where the operation counts GB/s."""
    problem = workload.known_problem
    work = 0 if problem is None else sum(problem.bytes_moved()) if problem.unit == "GB/s" else problem.flops()
    return Point({**workload.sizes, "dtype": workload.dtype, "mode": mode}, float(work), times)


def letters(operation: str) -> dict[str, str]:
    """Size -> its letter, from the titles of an operation's fields: "Batch (B)"."""
    known = operations().get(operation)
    fields = known.model_fields if known else {}
    found = {name: re.search(r"\((\w+)\)$", field.title or "") for name, field in fields.items()}
    return LETTERS | {name: match[1] for name, match in found.items() if match}


# --- the chart --------------------------------------------------------------------------------------------------------


def draw(one: Scaling, colours: dict[str, str], narrow: bool = False) -> Any:
    """A line for each kernel with its name at the end; dashed: as the work grows, from the baseline's first time."""
    width, height = WIDTHS[narrow] - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    data = _lines(one)
    sizes = sorted(set(data["size"]))
    low, high = reach(data.ms.min(), data.ms.max())
    scale = {"type": "log", "nice": False}
    several = len(one.of.varies) > 1
    labels = "format(datum.value, ',.3~s')" if several else "format(datum.value, ',.9~g')"
    title = "FLOP of one call" if several else one.letter(one.of.varies[0])
    x_axis = alt.Axis(values=_few(sizes), labelExpr=labels, title=title, labelOverlap="greedy", grid=False)
    spans = "datum.value >= 1 ? format(datum.value, ',.9~g') + ' ms' : format(datum.value * 1000, ',.9~g') + ' µs'"
    y_axis = alt.Axis(values=log_ticks(low, high, 6), labelExpr=spans, title=None, labelPadding=9)
    x = alt.X("size:Q", scale=alt.Scale(**scale, domain=[sizes[0], sizes[-1]]), axis=x_axis)
    y = alt.Y("ms:Q", scale=alt.Scale(**scale, domain=[low, high]), axis=y_axis)
    tones = ["leader", "baseline", "other"]
    colour = alt.Color(
        "who:N", legend=None, scale=alt.Scale(domain=tones, range=[colours["accent"], colours["ink"], colours["other"]])
    )
    tooltip = [alt.Tooltip("kernel:N"), alt.Tooltip("at:N", title="size"), alt.Tooltip("time:N")]
    base = alt.Chart(data).encode(x=x, y=y, color=colour)
    lines = base.mark_line(strokeWidth=2, aria=False).encode(detail="kernel:N")
    points = base.mark_point(filled=True, size=44, opacity=1).encode(tooltip=tooltip)
    guide = alt.Chart(_guide(one, data, low, high)).mark_line(
        color=colours["quiet"], strokeDash=[3, 4], aria=False, clip=True
    )
    ends = alt.Chart(_ends(data, low, high, height)).encode(x=alt.XValue(width + 8), y=y, text="kernel:N")
    named = written(ends, colours, align="left", baseline="middle", limit=RIGHT - 10)
    room = {"left": LEFT, "top": TOP, "right": RIGHT, "bottom": BOTTOM}
    return in_pixels(alt.layer(guide.encode(x=x, y=y), lines, points, named), width, height, room, colours)


def _few(sizes: Sequence[float]) -> list[float]:
    """Sizes that an axis names: each at least a sixth of the axis after the one before."""
    found: list[float] = []
    for size in sizes:
        if not found or math.log(size / found[-1]) >= math.log(sizes[-1] / sizes[0]) / 6:
            found.append(size)
    return found


def _lines(one: Scaling) -> pd.DataFrame:
    kernels = [row["kernel"] for row in one.rows][:MOST_KERNELS]
    rows = [
        (
            kernel, "leader" if kernel == one.leader != one.baseline else "baseline" if kernel == one.baseline else "other",
            one.of.size(point), scaling.named(point, one.of, one.shown), point.times[kernel].ms,
            f"{point.times[kernel].low * 1e3:,.4g} to {point.times[kernel].high * 1e3:,.4g} µs",
        )
        for kernel in kernels
        for point in one.of.points
        if kernel in point.times
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["kernel", "who", "size", "at", "ms", "time"])


def _guide(one: Scaling, data: pd.DataFrame, low: float, high: float) -> pd.DataFrame:
    first = data[data.kernel == data.kernel.iloc[0]].iloc[0]
    start = next(point for point in one.of.points if one.of.size(point) == first["size"])
    rows = [
        (one.of.size(point), first.ms * point.work / start.work) for point in one.of.points if point.work >= start.work
    ]
    return pd.DataFrame(rows, columns=["size", "ms"])


def _ends(data: pd.DataFrame, low: float, high: float, height: int) -> pd.DataFrame:
    """Each kernel's name beside the end of its line, moved where it would stand on another."""
    last = data.sort_values("size").groupby("kernel", sort=False).last()
    last["y"] = [height * (1 - math.log(ms / low) / math.log(high / low)) for ms in last.ms]
    last = last.sort_values("y").reset_index()
    places: list[float] = []
    for y in last.y:
        places.append(max(y, places[-1] + APART) if places else y)
    below = float(height + APART)
    for number in reversed(range(len(places))):
        below = places[number] = min(places[number], below - APART)
    last["ms"] = [low * (high / low) ** (1 - place / height) for place in places]
    return last[["kernel", "ms"]]
