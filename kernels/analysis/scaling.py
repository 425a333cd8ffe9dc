"""How the time of a kernel grows with the work: over workloads that differ in nothing but their sizes.

Rules, all in logarithms. The growth of a time is its last value over its first; its interval adds both intervals in
quadrature. The exponent is the slope of a least-squares line of time over size; its interval adds the scatter around
the line (Student's t) and the intervals of the times. A step leads to the next size with STEP times the work. It is
flat if the time grows by less than the square root of what the work grows. A kernel is latency-bound below a size if
all steps up to it are flat and its first time is at most LATENCY_MS: it then waits for the launch, or the device is
not full. Which of the two it is, times do not tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from kernels.analysis.statistics import CONFIDENCE, t_quantile
from kernels.contract.arm_result import Ratio

LEAST_POINTS = 3
"""Fewest sizes of a series."""
FLAT = 0.5
"""A step is flat if the time's exponent over the work is below this."""
STEP = 1.5
"""Least growth of the work in a step."""
LATENCY_MS = 0.05
"""Longest time that is called latency-bound."""
FEW = {1: 63.657, 2: 9.925}
"""Student's quantile of 0.995 with so few degrees of freedom (t_quantile begins at 3)."""


class Time(NamedTuple):
    """A p50 with its interval, in ms."""

    ms: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Half the interval's length, in logarithms."""
        return math.log(self.high / self.low) / 2 if self.high > self.low > 0 else 0.0


class Point(NamedTuple):
    """One workload."""

    sizes: Mapping[str, Any]
    work: float
    """What one call has to do, in any unit that all points share: FLOPs, or bytes."""
    times: Mapping[str, Time]
    """Kernel -> its time; kernels without a valid time are missing."""


@dataclass(frozen=True)
class Series:
    """Workloads that agree in all sizes but those named, in the order of their work."""

    varies: tuple[str, ...]
    fixed: Mapping[str, Any]
    points: Sequence[Point]

    def size(self, point: Point) -> float:
        """What the exponent is over: the size that varies, or the work if several do."""
        return float(point.sizes[self.varies[0]]) if len(self.varies) == 1 else point.work

    @property
    def span(self) -> float:
        """The last work over the first."""
        return self.points[-1].work / self.points[0].work


@dataclass(frozen=True)
class Growth:
    """How the time of one kernel grows over a series."""

    kernel: str
    time: Ratio
    """The time at the last size over the time at the first."""
    work: float
    """The same of the work."""
    exponent: float
    """Of the time, over the size that varies."""
    uncertain: float
    """Half the exponent's interval."""
    flat_below: Point | None
    """All steps up to here are flat; None if the first step is not."""
    flat_everywhere: bool
    is_latency: bool
    """Whether the flat part is short enough to be latency-bound."""
    is_worse: bool
    """Whether its time grows more than the work, beyond its interval."""


def series(points: Sequence[Point]) -> list[Series]:
    """For each size the longest series in which only it varies; where there is none, the same of two sizes together.

    A series has at least LEAST_POINTS points, each with more work than the one before.
    """
    points = _told_apart(points)
    names = [name for name in (points[0].sizes if points else ()) if _is_number(points, name)]
    found = [best for name in names if (best := _longest(points, (name,)))]
    if found:
        return found
    return [best for pair in combinations(names, 2) if (best := _longest(points, pair))]


def _told_apart(points: Sequence[Point]) -> list[Point]:
    """Points without sizes that equal an earlier one everywhere, as KV heads do that default to heads."""
    names = list(points[0].sizes) if points else []
    twins = {
        name
        for first, name in combinations(names, 2)
        if all(point.sizes[first] == point.sizes[name] for point in points)
        and len({str(point.sizes[name]) for point in points}) > 1
    }
    return [
        point._replace(sizes={name: value for name, value in point.sizes.items() if name not in twins})
        for point in points
    ]  # fmt: skip


def _is_number(points: Sequence[Point], name: str) -> bool:
    values = [point.sizes.get(name) for point in points]
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values) and len(set(values)) > 1


def _longest(points: Sequence[Point], varies: tuple[str, ...]) -> Series | None:
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        fixed = tuple((name, str(value)) for name, value in point.sizes.items() if name not in varies)
        groups.setdefault(fixed, []).append(point)
    chains = [chain for group in groups.values() if len(chain := _rising(group, varies)) >= LEAST_POINTS]
    chains = [chain for chain in chains if all(chain[-1].sizes[name] > chain[0].sizes[name] for name in varies)]
    if not chains:
        return None
    best = max(chains, key=lambda chain: (len(chain), chain[-1].work / chain[0].work, chain[-1].work))
    return Series(varies, {name: value for name, value in best[0].sizes.items() if name not in varies}, best)


def _rising(points: Sequence[Point], varies: tuple[str, ...]) -> list[Point]:
    """Points in which no size falls and the work rises."""
    chain: list[Point] = []
    for point in sorted(points, key=lambda one: one.work):
        if chain and (
            point.work <= chain[-1].work or any(point.sizes[name] < chain[-1].sizes[name] for name in varies)
        ):
            continue
        chain.append(point)
    return chain


def growths(one: Series) -> list[Growth]:
    """Each kernel that has a time on at least LEAST_POINTS of the sizes, in the order of the first point."""
    kernels = dict.fromkeys(kernel for point in one.points for kernel in point.times)
    found = (_growth(one, kernel) for kernel in kernels)
    return [growth for growth in found if growth]


def _growth(one: Series, kernel: str) -> Growth | None:
    points = [point for point in one.points if kernel in point.times]
    if len(points) < LEAST_POINTS:
        return None
    times = [point.times[kernel] for point in points]
    first, last = times[0], times[-1]
    far = math.hypot(first.spread, last.spread)
    grown, work = last.ms / first.ms, points[-1].work / points[0].work
    time = Ratio(grown, grown * math.exp(-far), grown * math.exp(far))
    exponent, uncertain = fit([one.size(point) for point in points], times)
    steps = _flat_steps(points, kernel)
    return Growth(
        kernel, time, work, exponent, uncertain,
        flat_below=points[steps] if steps else None,
        flat_everywhere=bool(steps) and points[steps].work * STEP > points[-1].work,
        is_latency=bool(steps) and times[0].ms <= LATENCY_MS,
        is_worse=time.low > work,
    )  # fmt: skip


def _flat_steps(points: Sequence[Point], kernel: str) -> int:
    """Position of the point up to which all steps are flat; 0: the first step is not."""
    count = 0
    for before, after in pairwise(_far_apart(points)):
        grown = math.log(after.times[kernel].ms / before.times[kernel].ms)
        if grown >= FLAT * math.log(after.work / before.work):
            break
        count = points.index(after)
    return count


def _far_apart(points: Sequence[Point]) -> list[Point]:
    """Points whose work is at least STEP times that of the one before: noise does not decide about small steps."""
    found = [points[0]]
    for point in points[1:]:
        if point.work >= STEP * found[-1].work:
            found.append(point)
    return found


def fit(sizes: Sequence[float], times: Sequence[Time]) -> tuple[float, float]:
    """(exponent of the time over the size, half its interval)."""
    x, y = [math.log(size) for size in sizes], [math.log(time.ms) for time in times]
    n = len(x)
    x_mean, y_mean = sum(x) / n, sum(y) / n
    spread = sum((value - x_mean) ** 2 for value in x)
    slope = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / spread
    left = sum((b - y_mean - slope * (a - x_mean)) ** 2 for a, b in zip(x, y, strict=True))
    freedom = n - 2
    scatter = 0.0
    if freedom:
        quantile = FEW.get(freedom) or t_quantile(0.5 + CONFIDENCE / 2, freedom)
        scatter = quantile * math.sqrt(left / freedom / spread)
    measured = math.sqrt(sum(((a - x_mean) * time.spread) ** 2 for a, time in zip(x, times, strict=True))) / spread
    return slope, math.hypot(scatter, measured)


# --- in a sentence ----------------------------------------------------------------------------------------------------


def sentence(one: Series, found: Sequence[Growth], leader: str, baseline: str, shown: Mapping[str, str]) -> str:
    """ "mine's time grows 15.3x ±0.8% while the work grows 16x, sdpa's 3.0x ±2.1%: latency-bound below S=1024."

    leader: the kernel that the sentence begins with; if it is missing, the baseline. shown: size -> its short name, such as
    {"seq_len": "S"}.
    """
    by_name = {growth.kernel: growth for growth in found}
    named = [by_name[name] for name in dict.fromkeys((leader, baseline)) if name in by_name]
    if not named:
        return ""
    first, *others = named
    clauses = [
        f"{first.kernel}'s time grows {grown(first.time)} while the work grows {digits(first.work)}x{_bound(first, one, shown)}"
    ]
    clauses += [f"{other.kernel}'s {grown(other.time)}{_bound(other, one, shown)}" for other in others]
    worse = [growth.kernel for growth in named if growth.is_worse]
    more = f" The time of {' and '.join(worse)} grows more than the work." if worse else ""
    return f"{'; '.join(clauses) if ':' in clauses[0] else ', '.join(clauses)}.{more}"


def _bound(growth: Growth, one: Series, shown: Mapping[str, str]) -> str:
    """ ": latency-bound below S=1024"; empty if it grows with the work from the first size on."""
    if growth.flat_below is None:
        return ""
    what = "latency-bound" if growth.is_latency else "it hardly grows"
    if growth.flat_everywhere:
        return f": {what} at every size here"
    return f": {what} below {named(growth.flat_below, one, shown)}"


def named(point: Point, one: Series, shown: Mapping[str, str]) -> str:
    """A point by the sizes that vary: "B=8 H=16"."""
    return " ".join(f"{shown.get(name, name)}={point.sizes[name]}" for name in one.varies)


def grown(time: Ratio) -> str:
    """ "15.3x ±0.8%"."""
    side = max(time.high / time.ratio, time.ratio / time.low) - 1
    return f"{three_digits(time.ratio)}x \N{PLUS-MINUS SIGN}{side:.1%}"


def three_digits(value: float) -> str:
    """Three significant digits: 15.3, 16.0, 1,340."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def digits(value: float) -> str:
    """The same without zeros at the end of a whole number: 15.3, 16, 1,340."""
    return three_digits(value).removesuffix(".0").removesuffix(".00")
