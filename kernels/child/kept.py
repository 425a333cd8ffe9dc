"""Copies of timed calls' outputs, compared with the reference after the rounds. Used in the measuring child only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernels.child import outputs
from kernels.child.reference import Reference, measure, with_facts
from kernels.contract.replies import OutputReading

KEEP_SHARE = 0.05
"""Share of the free memory for one kept output, at most."""


@dataclass
class Kept:
    """What was kept of every arm since the last comparison."""

    free_bytes: Callable[[], int]
    copies: list[tuple[str, int, Any, dict[str, Any]]] = field(default_factory=list)
    """(arm, seed of its inputs, output, facts of the call)"""
    changed: list[str] = field(default_factory=list)
    """Arms whose timed calls changed their inputs."""

    def add(self, arm: str, seed: int, out: Any, inputs_changed: bool = False, early: Any = None) -> None:
        """Keeps a copy of a timed call's output, if it is small enough. early: the output as it was right after the call."""
        if inputs_changed:
            self.changed.append(arm)
        out = outputs.plain(out)
        if early is not None:
            self.copies.append((arm, seed, early, {"late": outputs.changed(early, out)}))
        elif self.has_room(outputs.nbytes(out)):
            self.copies.append((arm, seed, outputs.clone(out), {}))

    def add_trapped(self, arm: str, seed: int, early: Any, facts: dict[str, Any]) -> None:
        """Keeps what is already a copy, with what was seen of its call."""
        if self.has_room(outputs.nbytes(early)):
            self.copies.append((arm, seed, early, facts))

    def has_room(self, nbytes: int) -> bool:
        return not nbytes or nbytes < KEEP_SHARE * self.free_bytes()

    def compare(self, reference_of: Callable[[int], Reference]) -> tuple[list[tuple[str, OutputReading]], list[str]]:
        """(arm and reading of each copy, arms that changed their inputs); then nothing is kept.

        reference_of(seed): the reference of the inputs that this seed gives.
        """
        readings = []
        for arm, seed, out, facts in self.copies:
            late = facts.get("late", [False] * len(outputs.as_tuple(out)))
            readings.append((arm, with_facts(measure(out, reference_of(seed)), late=late)))
        changed = [*self.changed, *(arm for arm, _, _, facts in self.copies if facts.get("inputs_changed"))]
        self.copies.clear()
        self.changed.clear()
        return readings, changed
