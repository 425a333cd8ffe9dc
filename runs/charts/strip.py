"""The drawing of a ladder: rows on one logarithmic scale of speedups, in pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from runs.queries.ladder import Ladder

WIDTH, EDGE = 420, 10
TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
LEAST = 0.5
"""Slower kernels are drawn at the edge."""


@dataclass(frozen=True)
class Strip:
    """A logarithmic scale of speedups that all rows of a ladder share, in pixels."""

    low: float
    high: float

    @classmethod
    def of(cls, ladder: Ladder) -> Strip:
        ends = [1.0, *(ratio.ratio for _, ratio in ladder.kernels), *(tier.factor for tier in ladder.scale.tiers)]
        if ladder.most is not None:
            ends.append(ladder.most)
        return cls(max(LEAST, 0.9 * min(ends)), 1.25 * max(ends))

    def x(self, speedup: float) -> float:
        share = math.log(min(max(speedup, self.low), self.high) / self.low) / math.log(self.high / self.low)
        return round(EDGE + share * (WIDTH - 2 * EDGE), 1)

    def ticks(self) -> list[tuple[float, str]]:
        return [(self.x(tick), f"{tick:g}x") for tick in TICKS if self.low <= tick <= self.high]


def drawn(ladder: Ladder) -> dict[str, Any]:
    """The ladder's rows from slow to fast, with positions: {"width", "ticks", "one", "light", "rows": [...]}."""
    strip = Strip.of(ladder)
    rows: list[tuple[float, int, dict[str, Any]]] = [
        (1.0, 1, {"kind": "baseline", "point": ladder.base, "x": strip.x(1.0)})
    ]
    for point, ratio in ladder.kernels:
        low, high = strip.x(ratio.low), strip.x(ratio.high)
        place = {"x": strip.x(ratio.ratio), "low": low, "length": max(1.0, round(high - low, 1))}
        edge = ratio.ratio < strip.low
        rows.append((ratio.ratio, 2, {"kind": "kernel", "point": point, "ratio": ratio, "edge": edge} | place))
    for step in ladder.steps:
        rows.append((step.tier.factor, 0, {"kind": "tier", "step": step, "x": strip.x(step.tier.factor)}))
    most = ladder.most
    if most is not None:
        rows.append((most, 3, {"kind": "light", "speedup": most, "ms": ladder.base.limit_ms, "x": strip.x(most)}))
    return {
        "width": WIDTH,
        "ticks": strip.ticks(),
        "one": strip.x(1.0),
        "light": strip.x(most) if most is not None else None,
        "rows": [row for _, _, row in sorted(rows, key=lambda row: row[:2])],
    }
