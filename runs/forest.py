"""A forest plot in the rows of a table: where an interval of a ratio lies beside 1, on one scale for all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 150
"""Of a cell, in pixels."""
WIDEST = (0.5, 2.0)
"""What lies beyond is drawn at the edge."""
LEAST = 1.03
"""A scale reaches at least from 1 / LEAST to LEAST, so that noise does not look like news."""
EDGE = 6


@dataclass(frozen=True)
class Scale:
    """Logarithmic, from low to high."""

    low: float
    high: float

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]]) -> Scale:
        """Wide enough for every row's change, interval and margin."""
        ends = [1 / LEAST, LEAST]
        for row in rows:
            if row["change"] is not None:
                ends += [row["change_low"], row["change_high"], 1 / (1 + row["margin"]), 1 + row["margin"]]
        return cls(max(WIDEST[0], min(ends)), min(WIDEST[1], max(ends)))

    def x(self, ratio: float) -> float:
        """Pixels from the left."""
        share = math.log(min(max(ratio, self.low), self.high) / self.low) / math.log(self.high / self.low)
        return round(EDGE + share * (WIDTH - 2 * EDGE), 1)

    def cell(self, row: dict[str, Any]) -> dict[str, float] | None:
        """Positions of what is drawn in a row: interval, estimate, 1, and the margin in which there is no difference."""
        if row["change"] is None:
            return None
        low, high = self.x(row["change_low"]), self.x(row["change_high"])
        left, right = self.x(1 / (1 + row["margin"])), self.x(1 + row["margin"])
        return {
            "low": low,
            "length": max(1.0, round(high - low, 1)),
            "at": self.x(row["change"]),
            "one": self.x(1.0),
            "left": left,
            "band": round(right - left, 1),
            "width": WIDTH,
        }
