"""A ratio for tables and charts."""

from __future__ import annotations

from typing import NamedTuple


class Ratio(NamedTuple):
    """A ratio with its interval, and the margin around 1."""

    ratio: float
    low: float
    high: float
    margin: float
