"""Input sets of timed calls: their memory, their values, and what a kernel may not change about them.

A kernel gets its own tensor objects over this memory. New values wait in a stock, whose tensors no kernel gets, and are
written into a set right before the timed call. So nothing that a kernel computed earlier is of use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

from kernels.child.poison import same
from kernels.child.rewrite import counters_kept
from kernels.operations.base import Inputs

ROTATION = 5
"""The input sets together are this many times the cache: no call finds its inputs there."""
MAX_SETS = 128
copy_all = torch._foreach_copy_
Facts = tuple[Any, ...]
NAMES = ("address", "shape", "strides", "offset", "dtype", "memory", "gradient", "negative bit", "conjugate bit")


def facts_of(tensor: torch.Tensor) -> Facts:
    """Where a tensor lies, and how."""
    return (
        tensor.data_ptr(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        tensor.dtype,
        tensor.untyped_storage().nbytes(),
        tensor.requires_grad,
        tensor.is_neg(),
        tensor.is_conj(),
    )


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _some_operator_may_write() -> bool:
    """Whether an operator that Python code has registered says that it may write into its arguments, such as by
    `mutates_args="unknown"`: PyTorch counts each of its calls as a write."""
    found = [one for one in OPDEFS.values() if not one._init_fn.__module__.startswith("torch.")]
    arguments = [argument for one in found for argument in one._opoverload._schema.arguments]
    return any(argument.alias_info is not None and argument.alias_info.is_write for argument in arguments)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """New memory with the layout and the values of a tensor."""
    if any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)):
        return tensor.clone()
    new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return new.copy_(tensor)


def covering(nbytes: int, cache_bytes: int) -> int:
    """Sets of so many bytes of which none is in the cache when its turn comes."""
    return max(2, 1 + math.ceil(ROTATION * cache_bytes / nbytes))


def at_most(wanted: int, nbytes: int, room: float) -> int:
    """Sets of so many bytes that fit into `room` beside their stock, which is as large: at least 2."""
    return min(wanted, max(2, int(room / (2 * nbytes))), MAX_SETS)


class Sets:
    """Input sets in fixed memory (graphs hold its addresses)."""

    def __init__(self, draw: Callable[[int], Inputs]) -> None:
        self.draw = draw
        self.clear()

    def clear(self) -> None:
        self.inputs: list[Inputs] = []
        """What kernels are called with."""
        self.seeds: list[int] = []
        """Of the values that are now in each set."""
        self._own: list[tuple[torch.Tensor, ...]] = []
        self._facts: list[list[Facts]] = []
        self._versions: list[list[int]] = []
        self._scaled: set[int] = set()
        self._stock: list[tuple[int, Inputs]] = []

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Inputs:
        return self.inputs[index % len(self.inputs)]

    def seed(self, index: int) -> int:
        return self.seeds[index % len(self.seeds)]

    def make(self, seeds: Sequence[int]) -> None:
        """One set for each seed."""
        self.clear()
        for seed in seeds:
            drawn = self.draw(seed)
            own = tuple(_like(tensor) for tensor in drawn.tensors)
            self._own.append(own)
            self._facts.append([facts_of(tensor) for tensor in own])
            self._stock.append((seed, drawn))
            self.seeds.append(seed)
            self.inputs.append(Inputs(_handed(own), drawn.options))
        self.note()

    # --- values ---------------------------------------------------------------------------------------------------

    def renew(self, seeds: Sequence[int]) -> None:
        """Draws new values for the first sets. They wait in the stock."""
        for index, seed in enumerate(seeds[: len(self._stock)]):
            self._stock[index] = seed, self.draw(seed)

    def write(self, indices: Iterable[int]) -> None:
        """Writes the values of the stock into these sets."""
        if not (wanted := sorted({index % len(self) for index in indices})):
            return
        self._copy(wanted, [self._stock[index][1] for index in wanted])
        for index in wanted:
            self.seeds[index] = self._stock[index][0]

    def is_unchanged(self, index: int) -> bool:
        """Whether a set still holds the values that were written into it from the stock."""
        seed, values = self._stock[index := index % len(self)]
        pairs = zip(self._own[index], values.tensors, strict=True)
        return self.seeds[index] != seed or all(same(mine, written) for mine, written in pairs)

    def refill(self, index: int, seed: int, values: Inputs | None = None) -> None:
        """Writes the values of a seed into one set."""
        index %= len(self)
        self._copy([index], [values or self.draw(seed)])
        self.seeds[index] = seed

    def _copy(self, indices: Sequence[int], values: Sequence[Inputs]) -> None:
        into = [tensor for index in indices for tensor in self._own[index]]
        with counters_kept(into):
            copy_all(into, [tensor for one in values for tensor in one.tensors])
        self.note(indices)

    # --- what a kernel may not change -----------------------------------------------------------------------------

    def note(self, indices: Iterable[int] | None = None, scaled: bool = False) -> None:
        """After the instrument wrote into these sets, or all: later writes are a kernel's. scaled: the values are those of no
        seed."""
        if indices is None:
            self._versions, self._scaled = [[_version(tensor) for tensor in own] for own in self._own], set()
            return
        for index in indices:
            self._versions[index] = [_version(tensor) for tensor in self._own[index]]
            (self._scaled.add if scaled else self._scaled.discard)(index)

    def changes(self) -> list[str]:
        """What differs from the tensors that were handed out, as "input 2: strides (64, 1) instead of (1, 64)". Puts it
        right."""
        found: list[str] = []
        for index, own in enumerate(self._own):
            mine = [change for number in range(len(own)) for change in self._change(index, number)]
            if mine:
                self.inputs[index] = Inputs(_handed(own), self.inputs[index].options)
                self.note([index])
            found += [change for change in mine if change not in found]
        return found

    def _change(self, index: int, number: int) -> list[str]:
        handed, own, before = self.inputs[index].tensors[number], self._own[index][number], self._facts[index][number]
        now, name = facts_of(handed), f"input {number + 1}"
        if type(handed) is not torch.Tensor:
            return [f"{name}: became a {type(handed).__name__}"]
        if now != before:
            which = next(i for i, fact in enumerate(now) if fact != before[i])
            if (now[2], now[1]) != (before[2], before[1]):
                which = 1 if now[1] != before[1] else 2
            return [f"{name}: {NAMES[which]} {now[which]} instead of {before[which]}"]
        if facts_of(own) != before:
            return [f"{name}: its memory"]
        if (count := _version(own)) == self._versions[index][number]:
            return []
        if not _some_operator_may_write() or not self._holds_its_values(index, number):
            return [f"{name}: written"]
        self._versions[index][number] = count
        return []

    def _holds_its_values(self, index: int, number: int) -> bool:
        """Whether an input holds what was written into it last, or nobody knows what that was."""
        if index in self._scaled:
            return True
        seed, values = self._stock[index]
        written = values if seed == self.seeds[index] else self.draw(self.seeds[index])
        return same(self._own[index][number], written.tensors[number])


def _handed(own: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Tensor objects of their own over the same memory, with the same version counter."""
    return tuple(tensor.detach() for tensor in own)
