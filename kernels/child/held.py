"""The outputs of a block of timed calls: all alive until the next command. Used in the measuring child only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch

from kernels.child import outputs, poison
from kernels.child.clock import Graph


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

    def let_go(self, inputs: Collection[int]) -> None:
        """Poisons and frees the outputs: memory must not hold right results when it is used again.

        inputs: the addresses of the input sets' memory, which is left alone. A graph's outputs stay its own.
        """
        for out in (*self.outputs, self.untimed) if self.graph is None else ():
            for one in outputs.as_tuple(outputs.plain(out)):
                if type(one) is torch.Tensor and one.untyped_storage().data_ptr() not in inputs:
                    poison.fill(one)
        self.outputs, self.untimed = [], None
