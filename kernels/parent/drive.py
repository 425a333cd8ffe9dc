"""A group of arms on a bench, as a protocol drives it. Parent side."""

from __future__ import annotations

import random
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernels.workload import Protocol

AA = " (A/A)"
"""Suffix of the baseline's second arm."""
CALL_LIMIT_S = 120.0


class Commands(typing.Protocol):
    """Takes commands of the bench (kernels/child/bench.py) by name: a measuring child, this process, or a simulator."""

    def call(self, do: str, limit_s: float = ..., **arguments: Any) -> dict[str, Any]:
        """Does it and returns its reading. Raises CommandFailed, ChildDied or ChildTimedOut."""
        ...


@dataclass
class Drive:
    """One group of arms on a bench, with what rounds need to know beside it."""

    bench: Commands
    arms: list[str]
    baseline: str
    plan: Protocol
    seed: int
    on_step: Callable[[str, str], None] = lambda arm, text: None
    """Called with the arm about to run (a crash belongs to it) and a word of progress."""
    sm_mhz: Callable[[], float | None] = lambda: None
    slowed: Callable[[], bool] = lambda: False
    """Whether heat has slowed the device down since this was last asked."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def call(self, arm: str, do: str, limit_s: float = CALL_LIMIT_S, **arguments: Any) -> dict[str, Any]:
        self.on_step(arm, "")
        return self.bench.call(do, limit_s, arm=kernel_of(arm), **arguments)

    def fresh_seed(self) -> int:
        return self.rng.randrange(2**31)


def kernel_of(arm: str) -> str:
    return arm.removesuffix(AA)


def prepare(drive: Drive, rotate: bool) -> dict[str, Any]:
    """Input sets on the device, each from a seed of its own."""
    return drive.bench.call("prepare", CALL_LIMIT_S, seeds=[drive.fresh_seed() for _ in range(256)], rotate=rotate)
