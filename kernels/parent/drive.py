"""A group of arms on a bench, driven by a protocol. Parent side."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.contract.replies import Prepared
from kernels.operations.base import Distribution
from kernels.parent.seeds import Draws
from kernels.protocol import Protocol

AA = " (A/A)"
"""Suffix of the baseline's second arm."""
CALL_LIMIT_S = 120.0
MOST_SETS = 128


class Commands(typing.Protocol):
    """Executes commands of the bench (kernels/child/bench.py) by name: a measuring child, this process, or a
    simulator."""

    def call(self, do: str, limit_s: float = ..., **arguments: Any) -> Any:
        """Executes a command; returns its model in kernels/contract/replies.py.

        Raises CommandFailed, ChildDied or ChildTimedOut.
        """
        ...


@dataclass
class Drive:
    """One group of arms on a bench, and the context of its rounds."""

    bench: Commands
    arms: list[str]
    baseline: str
    plan: Protocol
    seed: int
    on_step: Callable[[str, str], None] = lambda arm, text: None
    """Called with the arm about to run (crashes are attributed to it) and a progress text."""
    sm_mhz: Callable[[], float | None] = lambda: None
    slowed: Callable[[], bool] = lambda: False
    """Whether heat slowed the device down since the last call."""
    look: Callable[[], None] = lambda: None
    """Called after each round: takes a sample of the host's load."""
    seen: Callable[[str, Mapping[str, list[list[float]]]], None] = lambda baseline, blocks: None
    """Called with the blocks of all rounds so far: shows what is measured."""
    kinds: Sequence[Distribution] = ()
    """Distributions, beside the usual one, of inputs of single calls among the others."""

    def __post_init__(self) -> None:
        self.rng = Draws(f"drive/{self.seed}")

    def call(self, arm: str, do: str, limit_s: float = CALL_LIMIT_S, **arguments: Any) -> Any:
        self.on_step(arm, "")
        return self.bench.call(do, limit_s, arm=kernel_of(arm), **arguments)

    def fresh_seed(self) -> int:
        return self.rng.of_inputs()


def kernel_of(arm: str) -> str:
    return arm.removesuffix(AA)


def prepare(drive: Drive, sets: int = 1) -> Prepared:
    """Makes input sets on the device, each from its own seed. sets: how many; 0: as many as do not fit into the cache."""
    seeds = [drive.fresh_seed() for _ in range(sets or MOST_SETS)]
    prepared: Prepared = drive.bench.call("prepare", CALL_LIMIT_S, seeds=seeds, sets=sets)
    return prepared
