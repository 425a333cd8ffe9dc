"""Scales and ticks of charts: pixels from the top, ratios, and logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import altair as alt

ABOVE = (
    (), (1.05,), (1.1,), (1.05, 1.1), (1.2,), (1.1, 1.2), (1.1, 1.2, 1.3), (1.2, 1.4), (1.2, 1.4, 1.6), (1.5,), (1.25, 1.5),
    (1.3, 1.7), (1.5, 2.0), (1.5, 2.0, 3.0), (2.0,), (2.0, 3.0), (3.0,), (2.0, 4.0), (2.0, 4.0, 8.0), (5.0,), (2.0, 5.0),
    (10.0,), (3.0, 10.0), (2.0, 5.0, 10.0), (20.0,), (5.0, 20.0), (2.0, 5.0, 10.0, 20.0), (3.0, 10.0, 30.0),
    (2.0, 5.0, 10.0, 20.0, 50.0), (5.0, 50.0), (100.0,), (10.0, 100.0), (3.0, 10.0, 30.0, 100.0), (10.0, 100.0, 1000.0),
    (30.0, 1000.0),
)  # fmt: skip
BELOW = (
    (), (0.95,), (0.9,), (0.9, 0.95), (0.8,), (0.8, 0.9), (0.7,), (0.7, 0.85), (0.6, 0.8), (0.5,), (0.5, 0.7), (0.25, 0.5),
    (0.3,), (0.3, 0.5), (0.3, 0.5, 0.7), (0.2,), (0.2, 0.5), (0.1,), (0.1, 0.3), (0.1, 0.2, 0.5), (0.05, 0.2), (0.03,),
    (0.03, 0.1, 0.3), (0.01,), (0.01, 0.1), (0.001, 0.01, 0.1), (0.001, 0.03),
)  # fmt: skip
"""Sets of ticks for ratios above 1 and below. One of each and 1 between them make the ticks of an axis."""
FEWEST, MOST = 3, 7
"""Ticks of an axis of ratios."""
APART = 46
"""Pixels between two labels of an axis, at least."""
EVEN, EVEN_SMALL = 10, 3
"""Even steps are for an axis whose end is at most so many times its begin: on a longer one, and on a small one sooner,
their labels meet."""
SMALL = 5
"""Labels; fewer than these make a small axis."""


def placed(channel: Any, field: str, extent: float) -> Any:
    """A channel of pixel positions."""
    return channel(field, scale=alt.Scale(domain=[0, extent], range=[0, extent], nice=False), axis=None)


def ratio_ticks(low: float, high: float, most: int) -> list[float]:
    """Ticks of a logarithmic axis of ratios, 1 among them: of the sets that fit the one that reaches nearest to both ends; at
    most so many."""
    span = math.log(high / low)

    def rank(ticks: Sequence[float]) -> tuple[bool, float, int]:
        return len(ticks) >= FEWEST, round(math.log(ticks[-1] / ticks[0]) / span, 1), len(ticks)

    sets = ([tick for tick in (*below, 1.0, *above) if low <= tick <= high] for below, above in product(BELOW, ABOVE))
    return max((ticks for ticks in sets if _fits(ticks, span, most)), key=rank, default=[1.0])


def _fits(ticks: Sequence[float], span: float, most: int) -> bool:
    """Whether so many ticks have room, and stand apart on an axis of this length."""
    apart = all(math.log(after / before) / span > 1 / (most + 1) for before, after in pairwise(ticks))
    return 1.0 in ticks and len(ticks) <= min(most, MOST) and apart


def reach(low: float, high: float) -> tuple[float, float]:
    """(from, to) of an axis of times: `to` is at least 1.5 times `from`, and marks stand off both ends."""
    room = max(1.08, math.sqrt(1.5 * low / high))
    return low / room, high * room


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Ticks on a log axis: 1, 2, 5, 10, ...; fewer of each decade, then decades, if too many; at least three where so
    many fit, or even steps within one decade."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    sets = []
    for leads, every in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 3), ((1,), 4)):
        ticks = [lead * 10.0**decade for decade in decades if decade % every == 0 for lead in leads]
        sets.append([tick for tick in ticks if low <= tick <= high])
    long = high > low * (EVEN_SMALL if most < SMALL else EVEN)
    for least in (3, 2) if long else (3,):
        for ticks in sets:
            if least <= len(ticks) <= max(most, least):
                return ticks
    steps = (lead * 10.0**decade for decade in range(decades[-1], decades[0] - 3, -1) for lead in (5, 2, 1))
    evens = ([step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)] for step in steps)
    fewest = 2 if most < SMALL else 4
    return next(ticks for ticks in evens if len(ticks) >= fewest)


def spread(values: Sequence[float], most: int) -> list[int]:
    """Positions of so many values, evenly spaced in their order of size, both ends among them."""
    order = sorted(range(len(values)), key=lambda number: values[number])
    if len(order) <= most:
        return order
    return [order[round(number * (len(order) - 1) / (most - 1))] for number in range(most)]
