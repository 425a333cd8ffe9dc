"""Which kernel a place names where several are ahead of the baseline: one rule for the leaderboard, tiers and sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

Ahead = TypeVar("Ahead", bound=tuple[Any, Any])
"""A result that counts, and its speedup with the interval of the page: for many comparisons it is wider than the result's own."""


def surest(ahead: Iterable[Ahead]) -> float:
    """The highest low end of the page: what is certain of the lead. 0: no kernel is ahead."""
    return max((ratio.low for _, ratio in ahead), default=0.0)


def foremost(ahead: Iterable[Ahead]) -> list[Ahead]:
    """Of kernels that are ahead, those that are tied with the best one; each kernel once. The first one is named: its
    own 99% interval has the highest low end. A page that stands for more comparisons has wider intervals and names the same
    kernel."""
    every = sorted(ahead, key=lambda one: (-one[0].ratio.low, one[0].kernel))
    low, found = surest(every), dict[str, Ahead]()
    for one in every:
        if one[1].high >= low:
            found.setdefault(one[0].kernel, one)
    return list(found.values())
