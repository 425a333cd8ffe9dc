"""Changes in a series of measurements: where it moved to another level, and whether one event moved it.

The rule: Welch's t between the runs before and after, weighted by nearness; a change is a local maximum with t >= 7 and a
difference of 2% or more. (Perfherder, Mozilla's monitor of performance tests, looks for changes in this way.) After a
change a new level begins, and no window reaches across it.

Two things differ from Perfherder. A run far from its side's median is pulled in: one outlier would make t of a true step
of 4% fall from 80 to 2. And where t is nearly flat, the change stands at the run that divides the levels best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import accumulate
from statistics import median
from typing import Any

import numpy as np

from kernels.analysis.statistics import t_quantile

Z99 = 2.5758
"""Of a 99% interval: its half-width in standard deviations."""


class Change(StrEnum):
    """What a test of two sides says. For times: slower is a regression."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    SUSPICIOUS = "suspicious"
    """A difference of 2% or more that is not as certain as the rule asks."""
    NONE = "no change"
    """The interval of the difference lies within 2% of zero."""
    UNKNOWN = "insufficient data"


@dataclass(frozen=True, slots=True)
class Rule:
    """Parameters of the rule. They are kept beside every verdict."""

    before: int = 24
    after: int = 12
    least: int = 8
    """Fewest runs on a side."""
    t: float = 7.0
    suspicious_t: float = 3.0
    effect: float = 0.02
    """Least difference, as a share."""
    clip: float = 3.0
    """A run further from its side's median than this many standard deviations counts as if it were that far: one
    outlier neither makes a change nor hides one."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


RULE = Rule()


@dataclass(frozen=True, slots=True)
class Value:
    """One run's time and the ends of its 99% interval, all in one unit. Raises ValueError if one is not positive."""

    time: float
    low: float
    high: float
    log: float = field(init=False, repr=False)
    log_sd: float = field(init=False, repr=False)
    """Standard deviation of the logarithm, from the interval."""

    def __post_init__(self) -> None:
        if not all(math.isfinite(one) and one > 0 for one in (self.time, self.low, self.high)):
            raise ValueError(f"not a time with an interval: {self.time}, {self.low} to {self.high}")
        object.__setattr__(self, "log", math.log(self.time))  # once: a series takes many means of them
        object.__setattr__(self, "log_sd", abs(math.log(self.high / self.low)) / (2 * Z99))


@dataclass(frozen=True, slots=True)
class Test:
    """Two sides compared. Ratios are after over before: 1.04 is 4% slower."""

    index: int
    """The first run after."""
    verdict: Change
    before: int
    """Runs that were looked at on this side."""
    after: int
    level_before: float | None = None
    """In the unit of the times: the weighted geometric mean."""
    level_after: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    """99% interval of the ratio."""
    t: float | None = None

    @property
    def is_change(self) -> bool:
        return self.verdict in (Change.REGRESSION, Change.IMPROVEMENT)


def compare(values: Sequence[Value], index: int, start: int = 0, end: int | None = None, rule: Rule = RULE) -> Test:
    """Tests the runs before `index` against those from it on, inside [start, end).

    Raises ValueError if index is outside.
    """
    end = len(values) if end is None else end
    if not start <= index <= end:
        raise ValueError(f"{index} is not in {start} to {end}")
    old, new = values[max(start, index - rule.before) : index], values[index : min(end, index + rule.after)]
    if min(len(old), len(new)) < rule.least:
        return Test(index, Change.UNKNOWN, len(old), len(new))
    before, after = _side(old[::-1], rule.before, rule.clip), _side(new, rule.after, rule.clip)
    difference = after.mean - before.mean
    error = math.hypot(before.error, after.error)
    freedom = error**4 / (before.error**4 / before.freedom + after.error**4 / after.freedom)
    reach = t_quantile(0.995, math.floor(freedom)) * error
    t = abs(difference) / error
    return Test(
        index,
        _verdict(difference, reach, t, rule),
        len(old),
        len(new),
        math.exp(before.mean),
        math.exp(after.mean),
        math.exp(difference),
        math.exp(difference - reach),
        math.exp(difference + reach),
        t,
    )


def _verdict(difference: float, reach: float, t: float, rule: Rule) -> Change:
    least = math.log1p(rule.effect)
    if abs(difference) >= least and t >= rule.t:
        return Change.REGRESSION if difference > 0 else Change.IMPROVEMENT
    if abs(difference) >= least and t >= rule.suspicious_t:
        return Change.SUSPICIOUS
    if abs(difference) + reach < least:
        return Change.NONE
    return Change.UNKNOWN


@dataclass(frozen=True, slots=True)
class _Side:
    mean: float
    error: float
    freedom: float


def _side(nearest_first: Sequence[Value], window: int, clip: float) -> _Side:
    """Weighted mean of the logarithms, its standard error, and the degrees of freedom of that.

    Weights fall linearly with the distance from the change. The spread is never less than the runs' own intervals say:
    a few runs may agree by chance.
    """
    weights = [(window - number) / window for number in range(len(nearest_first))]
    logs = _clipped(nearest_first, clip)
    total, squares = sum(weights), sum(weight**2 for weight in weights)
    mean = sum(weight * log for weight, log in zip(weights, logs, strict=True)) / total
    count = total**2 / squares  # effective number of runs
    spread = sum(weight * (log - mean) ** 2 for weight, log in zip(weights, logs, strict=True)) / total
    spread *= count / (count - 1)
    own = sum(weight * one.log_sd**2 for weight, one in zip(weights, nearest_first, strict=True)) / total
    variance = max(spread, own, 1e-18)
    return _Side(mean, math.sqrt(variance / count), count - 1)


def _clipped(values: Sequence[Value], clip: float) -> list[float]:
    """The logarithms, none further than `clip` standard deviations from their median. The deviation is that of the median
    absolute deviation (times 1.4826, as for normal values), and at least what the runs' own intervals say."""
    logs = [one.log for one in values]
    middle = median(logs)
    spread = max(1.4826 * median(abs(log - middle) for log in logs), median(one.log_sd for one in values), 1e-9)
    reach = clip * spread
    return [min(max(log, middle - reach), middle + reach) for log in logs]


def changes(values: Sequence[Value], rule: Rule = RULE, levels: Sequence[int] = ()) -> list[Test]:
    """The changes of a series, oldest first.

    levels: indices at which somebody began a new level: no window reaches across these, and none of them is a change.
    """
    found: list[Test] = []
    starts = sorted({0, *levels})
    for start, end in zip(starts, [*starts[1:], len(values)], strict=True):
        found += _between(values, start, end, rule)
    return found


def _between(values: Sequence[Value], start: int, end: int, rule: Rule) -> list[Test]:
    found = _peaks(values, start, end, rule)
    edges = [start, *(one.index for one in found), end]
    again = [compare(values, edges[k], edges[k - 1], edges[k + 1], rule) for k in range(1, len(edges) - 1)]
    return [new if new.is_change else old for old, new in zip(found, again, strict=True)]


def _peaks(values: Sequence[Value], start: int, end: int, rule: Rule) -> list[Test]:
    """The change with the largest t, and those on either side of it, with windows that end there."""
    tests = (compare(values, index, start, end, rule) for index in _screened(values, start, end, rule))
    best = max((test for test in tests if test.is_change), key=lambda test: test.t or 0.0, default=None)
    if best is None:
        return []
    best = _moved_to_the_step(values, best, start, end, rule)
    return [*_peaks(values, start, best.index, rule), best, *_peaks(values, best.index, end, rule)]


def _screened(values: Sequence[Value], start: int, end: int, rule: Rule) -> list[int]:
    """The places that are worth a test: their sides differ, in means or medians, by half of what counts. A quiet series of
    a thousand runs is then searched in milliseconds."""
    if end - start < 2 * rule.least:
        return []
    outside = [np.full(window, np.nan) for window in (rule.before, rule.after)]
    logs = np.concatenate([outside[0], [one.log for one in values[start:end]], outside[1]])
    windows = np.lib.stride_tricks.sliding_window_view
    inside = slice(rule.least, end - start - rule.least + 1)
    before = windows(logs, rule.before)[: end - start + 1][inside]
    after = windows(logs[rule.before :], rule.after)[: end - start + 1][inside]
    apart = [np.abs(middle(after, axis=1) - middle(before, axis=1)) for middle in (np.nanmean, np.nanmedian)]
    return [int(place) for place in np.flatnonzero(np.maximum(*apart) >= rule.effect / 2) + start + rule.least]


def _moved_to_the_step(values: Sequence[Value], best: Test, start: int, end: int, rule: Rule) -> Test:
    """The same change at the place that explains the runs best: with both levels fixed, the sum of the distances (in
    logarithms) from the level before and after is smallest there. t alone is nearly flat around its largest value."""
    assert best.level_before and best.level_after
    before, after = math.log(best.level_before), math.log(best.level_after)
    first = max(start + rule.least, best.index - rule.least)
    last = min(end - rule.least, best.index + rule.least)
    nearer = [abs(one.log - before) - abs(one.log - after) for one in values[first:last]]
    sums = list(accumulate(nearer, initial=0.0))
    here = min(range(len(sums)), key=lambda k: (round(sums[k], 9), abs(first + k - best.index)))
    moved = compare(values, first + here, start, end, rule)
    return moved if moved.is_change else best
