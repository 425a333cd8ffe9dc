"""The chart of a workload that is being measured: the median ratio of each kernel over the rounds so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from runs.charts.scales import ratio_ticks

LEAST_ROUNDS = 10
"""The axis is at least as long as so many rounds, and then grows with them."""
APART = 9.0
"""Least distance of two names, in percent of the height."""
MOST_LINES, MOST_TICKS = 8, 5


@dataclass(frozen=True)
class Line:
    """One kernel. Positions in percent of the chart."""

    name: str
    points: str
    end: float
    label: float
    """Where its name stands: not on another's."""
    ratio: float
    """The median of its rounds so far: a number, no verdict."""
    low: float
    high: float
    """The smallest and the largest round."""
    is_aa: bool


@dataclass(frozen=True)
class Lines:
    lines: list[Line]
    ticks: list[tuple[float, str]]
    """Position and text."""
    rounds: int


def live_lines(so_far: Mapping[str, Sequence[float]], count: int = 0, aa: str = " (A/A)") -> Lines | None:
    """so_far: kernel -> the ratio of each of the newest rounds; count: of how many. None before the first round."""
    known = {name: list(ratios) for name, ratios in so_far.items() if ratios}
    if not known:
        return None
    shown = dict(sorted(known.items(), key=lambda one: -median(one[1]))[:MOST_LINES])
    running = {name: [median(ratios[: n + 1]) for n in range(len(ratios))] for name, ratios in shown.items()}
    rounds = max(len(ratios) for ratios in running.values())
    values = [ratio for ratios in running.values() for ratio in ratios]
    low, high = min(0.95, *values) / 1.03, max(1.05, *values) * 1.03
    across = max(LEAST_ROUNDS, rounds * 1.15)

    def y(ratio: float) -> float:
        return round(100 * (1 - math.log(ratio / low) / math.log(high / low)), 2)

    def x(number: int) -> float:
        return round(100 * (number + 1) / across, 2)

    ends = {name: y(ratios[-1]) for name, ratios in running.items()}
    labels = _apart(ends)
    lines = [
        Line(
            "A/A" if name.endswith(aa) else name,
            " ".join(f"{x(number)},{y(ratio)}" for number, ratio in enumerate([ratios[0], *ratios], -1)),
            ends[name], labels[name], ratios[-1], min(shown[name]), max(shown[name]), name.endswith(aa),
        )
        for name, ratios in running.items()
    ]  # fmt: skip
    ticks = [(y(mark), f"{mark:g}x") for mark in ratio_ticks(low, high, MOST_TICKS)]
    return Lines(lines, ticks, max(rounds, count))


def _apart(ends: Mapping[str, float]) -> dict[str, float]:
    """Names moved down until none stands on another, then up if the last is below the chart."""
    places: dict[str, float] = {}
    below = -math.inf
    for name, end in sorted(ends.items(), key=lambda one: one[1]):
        below = places[name] = max(end, 5.0, below + APART)
    above = 95.0 + APART
    for name in reversed(list(places)):
        above = places[name] = min(places[name], above - APART)
    return {name: round(place, 2) for name, place in places.items()}
