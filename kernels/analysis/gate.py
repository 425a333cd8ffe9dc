"""Did a kernel get slower by more than is allowed? Holds, fails, or cannot be told; and what would tell."""

from __future__ import annotations

import math
from enum import StrEnum

from kernels.analysis.statistics import half_width
from kernels.analysis.verdicts import is_noisy
from kernels.contract.arm_result import Ratio
from kernels.protocol import MOST_PROCESSES


class Gate(StrEnum):
    """The word of a change, and of a whole gate."""

    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "cannot tell"


def limit_of(most: float) -> float:
    """The smallest change of speed that is allowed. most: largest allowed regression, as a share of the time: 0.02 allows
    a time of 1.02 times the earlier one."""
    return 1 / (1 + most)


def word_of(change: Ratio, margin: float, most: float) -> Gate:
    """change: speed after over speed before, with its 99% interval. It fails if the whole interval is beyond the limit, and
    holds if none of it is. margin: what A/A, or a control between the runs, moved without a change of the kernel. If that
    is more than is allowed, only a change beyond the margin is certain; if it is too wide, nothing is."""
    if is_noisy(margin):
        return Gate.UNKNOWN
    if change.high < limit_of(max(most, margin)):
        return Gate.FAILS
    return Gate.HOLDS if change.low >= limit_of(most) and margin <= most else Gate.UNKNOWN


def whole(words: list[Gate]) -> Gate:
    """One that fails, fails all; without any, or with one that cannot be told, nothing holds."""
    if Gate.FAILS in words:
        return Gate.FAILS
    return Gate.UNKNOWN if not words or Gate.UNKNOWN in words else Gate.HOLDS


def processes_needed(change: Ratio, most: float, before: int, after: int) -> int | None:
    """Fresh processes of each of the two runs with which the interval would no longer contain the limit, if the change is
    what it seems: the width falls with the square root of their number. None: more than a run may have; the change is then too
    near to the limit.

    before, after: processes that measured the two runs.
    """
    far = abs(math.log(change.ratio / limit_of(most)))
    of_one = half_width(change.low, change.high) ** 2 / (1 / before + 1 / after)
    if far == 0 or 2 * of_one / far**2 > MOST_PROCESSES:
        return None
    return max(before + 1, after + 1, math.ceil(2 * of_one / far**2))
