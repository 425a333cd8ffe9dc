"""When a result counts as confirmed: it was measured in enough fresh processes, and a measurement of the same kernel in processes
of its own does not contradict it, where that can tell."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from kernels.analysis.statistics import WIDEST_MARGIN
from kernels.contract.arm_result import Status, Verdict

THOROUGH = 5
"""A ratio from at least this many processes counts as thorough."""
TOLERANCE = 0.02
"""Isolated ratios of honest kernels are this near to those of the shared process: docs/instrument.md#isolated."""


class Opinion(StrEnum):
    AGREES = "agrees"
    DISAGREES = "disagrees"
    CANNOT_TELL = "cannot tell"
    """Calls are too short: then five processes are enough."""
    NONE = ""
    """The machine was busy, or the kernel cannot run isolated. A kernel could refuse to: that confirms nothing."""


ENOUGH = (Opinion.AGREES, Opinion.CANNOT_TELL)
"""What confirms a thorough result."""


class Isolated(Protocol):
    """An isolated result."""

    status: str
    why: str
    speedup_high: float | None
    margin: float


def is_thorough(processes: int | None) -> bool:
    """Whether a ratio comes from enough fresh processes."""
    return (processes or 1) >= THOROUGH


def opinion(claimed_low: float, isolated: Isolated) -> Opinion:
    """What an isolated result says of a speedup that was measured in the shared process.

    claimed_low: low end of its interval.
    """
    if isolated.status == Status.OK and isolated.why.startswith(Verdict.TOO_SHORT):
        return Opinion.CANNOT_TELL
    if isolated.status not in (Status.OK, Status.UNSUPPORTED):
        return Opinion.DISAGREES
    if isolated.speedup_high is None or isolated.margin > WIDEST_MARGIN:
        return Opinion.NONE
    return Opinion.AGREES if isolated.speedup_high * (1 + TOLERANCE) >= claimed_low else Opinion.DISAGREES
