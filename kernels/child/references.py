"""The references of one workload's checks, and how much memory they may hold. Used in the measuring child only."""

from __future__ import annotations

from functools import lru_cache

import torch

from kernels.child.reference import Reference
from kernels.operations.base import Distribution, Operation

MOST_HELD, MOST_UNUSED = 1 / 8, 1 / 4
"""Shares of a GPU's memory: inputs that references hold, and what PyTorch keeps without using it."""


@lru_cache
def memory_of(device: str) -> int:
    """Bytes of a GPU's memory."""
    return torch.cuda.get_device_properties(device).total_memory


class References:
    """One reference for each seed. All kernels are checked against the same ones."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._by_seed: dict[int, Reference] = {}

    def get(self, problem: Operation, seed: int, thorough: bool, distribution: Distribution) -> Reference:
        """That of a seed. Frees what others hold, as `make_room` does."""
        if seed not in self._by_seed:
            self.make_room()
            inputs = problem.inputs(self.device, seed, distribution)
            self._by_seed[seed] = Reference(problem, inputs, seed, thorough, distribution)
        self.make_room(self._by_seed[seed])
        return self._by_seed[seed]

    def make_room(self, wanted: Reference | None = None) -> None:
        """Before a kernel's call that is not timed: a kernel that needs most of a GPU's memory gets it. If references hold much
        of it, those other than `wanted` free their inputs. If PyTorch keeps much unused, it goes back: it may be in pieces."""
        if not self.device.startswith("cuda"):
            return
        others = [one for one in self._by_seed.values() if one is not wanted]
        total = memory_of(self.device)
        if sum(one.held_bytes for one in others) > MOST_HELD * total:
            for one in others:
                one.let_go()
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > MOST_UNUSED * total:
            torch.cuda.empty_cache()

    def clear(self) -> None:
        self._by_seed.clear()
