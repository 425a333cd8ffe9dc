"""The references of one workload's checks, and how much memory they may hold. Used in the measuring child only."""

from __future__ import annotations

import torch

from kernels.child.reference import Reference
from kernels.operations.base import Distribution, Operation

LARGE_SHARE = 1 / 64
"""Of a GPU's memory: larger inputs are held for one reference at a time, and more unused memory is given back."""


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
        """Before a kernel's call that is not timed: a kernel that needs most of a GPU's memory gets it. Large inputs are freed,
        except those of `wanted`; and what PyTorch keeps unused goes back to the GPU, since it may be in pieces."""
        if not self.device.startswith("cuda"):
            return
        most = LARGE_SHARE * torch.cuda.mem_get_info()[1]
        for one in self._by_seed.values():
            if one is not wanted and one.held_bytes > most:
                one.let_go()
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > most:
            torch.cuda.empty_cache()

    def clear(self) -> None:
        self._by_seed.clear()
