"""Checks of correctness: those before timing, and on which distributions kernels are checked again afterwards."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.operations.base import Distribution

AGAIN = 2
"""Distributions, beside the usual one, on which kernels are checked again after their timed calls."""


@dataclass(frozen=True)
class Check:
    """One correctness check of an arm before timing."""

    seed: int
    distribution: Distribution = "normal"
    thorough: bool = True


def unusual(checks: Sequence[Check]) -> list[Distribution]:
    """Distributions of the checks before timing, without the usual one."""
    return list(dict.fromkeys(check.distribution for check in checks if check.distribution != "normal"))


def drawn_again(checks: Sequence[Check]) -> list[Distribution]:
    """Distributions of the checks before timing, drawn by chance: a kernel that works otherwise once it is timed cannot know
    them."""
    kinds = unusual(checks)
    return secrets.SystemRandom().sample(kinds, min(AGAIN, len(kinds)))
