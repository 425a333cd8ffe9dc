"""The outputs of a block of timed calls: all alive until the next command. Used in the measuring child only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from secrets import randbelow
from typing import Any

import torch

from kernels.child import outputs, poison
from kernels.child.clock import Graph


class EarlyCopy:
    """A copy of an output right after its call, before anything else is queued: what is written later is not in it. Chance
    decides after each call whether it is copied, and in the end which copy stays: no call tells anything of the next ones."""

    ON_AVERAGE, MOST = 2, 2
    """Copies in a block, and those that live at a time."""

    def __init__(self, calls: int, like: Any) -> None:
        """like: an output, so that memory for such copies is there, and a copy takes no time to get it."""
        self.chance, self.made = max(1, calls // self.ON_AVERAGE), 0
        self.found: tuple[int, Any] | None = None
        memory = [outputs.clone(outputs.plain(like)) for _ in range(self.MOST)]
        del memory

    def look(self, position: int, out: Any) -> bool:
        """After a call: copies its output, or not. Returns whether it did."""
        if randbelow(self.chance):
            return False
        self.made += 1
        copy = outputs.clone(outputs.plain(out))
        if not randbelow(self.made):
            self.found = position, copy
        return True


@dataclass
class Held:
    """The parent chooses one of them after the block, so that no call can know whether it will be checked."""

    arm: str
    calls: int
    memory: int | None
    """Bytes in use before the block."""
    graph: Graph | None = None
    outputs: list[Any] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    """Of the values that each call got."""
    untimed: Any = None
    kept: bool = False
    early: EarlyCopy | None = None
    """What `keep` gets, if chance copied one."""
    odd: int | None = None
    """Position of the call whose inputs are of another distribution."""

    def let_go(self, inputs: Collection[int]) -> None:
        """Poisons and frees the outputs: memory must not hold right results when it is used again.

        inputs: the addresses of the input sets' memory, which is left alone. A graph's outputs stay its own.
        """
        for out in (*self.outputs, self.untimed) if self.graph is None else ():
            for one in outputs.as_tuple(outputs.plain(out)):
                if type(one) is torch.Tensor and one.untyped_storage().data_ptr() not in inputs:
                    poison.fill(one)
        if self.early and self.early.found and not self.kept:  # what is kept is compared later
            for one in outputs.as_tuple(self.early.found[1]):
                poison.fill(one)
        self.outputs, self.untimed, self.early = [], None, None
