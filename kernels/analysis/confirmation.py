"""When a result counts as confirmed: it was measured in enough fresh processes, and a measurement of the same kernel in processes
of its own does not contradict it, where that can tell."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from kernels.analysis.statistics import WIDEST_MARGIN, half_width
from kernels.contract.arm_result import Status, Verdict

THOROUGH = 5
"""A ratio from at least this many processes counts as thorough."""
TOLERANCE = 0.02
"""Isolated ratios of honest kernels are this near to those of the shared process: docs/instrument.md#isolated."""


class Opinion(StrEnum):
    AGREES = "agrees"
    DISAGREES = "disagrees"
    TOO_SHORT = "too short to tell apart"
    """Calls are too short for isolation: then five processes are enough."""
    CANNOT_TELL = "cannot tell"
    """The machine was busy, or the interval is too wide: another measurement may tell."""
    NONE = ""
    """There is none, or the kernel cannot run isolated. A kernel could refuse to: that confirms nothing."""


ENOUGH = (Opinion.AGREES, Opinion.TOO_SHORT)
"""What confirms a thorough result."""


class Isolated(Protocol):
    """An isolated result."""

    status: str
    why: str
    speedup_low: float | None
    speedup_high: float | None
    margin: float
    contended: bool


def is_thorough(processes: int | None) -> bool:
    """Whether a ratio comes from enough fresh processes."""
    return (processes or 1) >= THOROUGH


def opinion(claimed_low: float, isolated: Isolated) -> Opinion:
    """What an isolated result says of a speedup that was measured in the shared process.

    claimed_low: low end of its interval.
    """
    if isolated.status == Status.UNSUPPORTED:
        return Opinion.NONE
    if isolated.status != Status.OK:
        return Opinion.DISAGREES
    if isolated.contended:
        return Opinion.CANNOT_TELL
    if is_too_short(isolated.why):
        return Opinion.TOO_SHORT
    low, high = isolated.speedup_low, isolated.speedup_high
    if low is None or high is None or isolated.margin > WIDEST_MARGIN:
        return Opinion.CANNOT_TELL
    return _compared(claimed_low, low, high)


def is_too_short(why: str) -> bool:
    """Whether calls were too short for isolation, by the reason of a result without a speedup."""
    return why.startswith(Verdict.TOO_SHORT)


def _compared(claimed_low: float, low: float, high: float) -> Opinion:
    """An interval that reaches the claim and far below it, too, cannot tell."""
    if high * (1 + TOLERANCE) < claimed_low:
        return Opinion.DISAGREES
    if low * (1 + TOLERANCE) < claimed_low and half_width(low, high) > TOLERANCE:
        return Opinion.CANNOT_TELL
    return Opinion.AGREES
