"""A ratio as tables and pictures show it."""

from __future__ import annotations

from typing import NamedTuple


class Ratio(NamedTuple):
    """A ratio with its interval, and the margin around 1 in which there is no difference."""

    ratio: float
    low: float
    high: float
    margin: float
