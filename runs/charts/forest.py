"""A forest plot in table rows: a ratio's interval beside 1, on one scale for all rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runs.queries.ratio import Ratio

WIDTH = 150
"""Width of a cell in pixels."""
WIDEST = (0.5, 2.0)
"""Widest scale; what is beyond is drawn at the edge."""
LEAST = 1.03
"""The scale spans at least 1 / LEAST to LEAST, so that noise looks small."""
EDGE = 6


@dataclass(frozen=True)
class Scale:
    """A logarithmic scale from low to high."""

    low: float
    high: float

    @classmethod
    def of(cls, rows: Iterable[Ratio | None]) -> Scale:
        """Wide enough for every row's ratio, interval and margin."""
        ends = [1 / LEAST, LEAST]
        for row in rows:
            if row is not None:
                ends += [row.low, row.high, 1 / (1 + row.margin), 1 + row.margin]
        return cls(max(WIDEST[0], min(ends)), min(WIDEST[1], max(ends)))

    @classmethod
    def around(cls, rows: Iterable[Ratio]) -> Scale:
        """Fits the rows' intervals; spans at least LEAST on both sides."""
        ends = [end for row in rows for end in (row.low, row.high)]
        middle, half = math.sqrt(min(ends) * max(ends)), max(LEAST, math.sqrt(max(ends) / min(ends)))
        return cls(middle / half, middle * half)

    def x(self, ratio: float) -> float:
        """Pixels from the left."""
        return round(EDGE + self.share(ratio) * (WIDTH - 2 * EDGE), 1)

    def share(self, ratio: float) -> float:
        """Position on the scale, from 0 to 1."""
        return math.log(min(max(ratio, self.low), self.high) / self.low) / math.log(self.high / self.low)

    def cell(self, row: Ratio | None) -> dict[str, Any] | None:
        """Positions in a row: interval, estimate, 1, and the margin around 1."""
        if row is None:
            return None
        low, high = self.x(row.low), self.x(row.high)
        left, right = self.x(1 / (1 + row.margin)), self.x(1 + row.margin)
        return {
            "low": low,
            "length": max(1.0, round(high - low, 1)),
            "at": self.x(row.ratio),
            "one": self.x(1.0),
            "left": left,
            "band": round(right - left, 1),
            "width": WIDTH,
            "beyond": "left" if row.ratio < self.low else "right" if row.ratio > self.high else "",
        }
