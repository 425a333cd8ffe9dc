"""A problem that came with its kernels, as its process described it: no code of it, and no values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from pydantic import ConfigDict

from kernels.analysis.memory import size
from kernels.child.nonfinite import as_held
from kernels.child.nudges import nudged_piece
from kernels.child.reference import Reference
from kernels.contract.isolation import Argument, Array, Described
from kernels.dtypes import DTYPES
from kernels.operations.base import Allowance, Distribution, Inputs, Like, Operation, Piece, allowance_of_unknown
from kernels.operations.problem import Problem

SHARE = 0.1
"""Of the free memory, for inputs and outputs of one call: several processes hold some of them, also in float64."""


class Brought(Problem):
    """Its inputs are empty memory: another process writes them."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    described: Described

    @classmethod
    def of(cls, problem: Operation, described: dict[str, Any]) -> Brought:
        return cls(**problem.model_dump(), described=Described.model_validate(described))

    @property
    def arrays(self) -> list[Array]:
        """The arguments that are tensors."""
        return [one.array for one in self.described.arguments if one.array]

    @property
    def likes(self) -> tuple[Like, ...]:
        return tuple((tuple(one.shape), dtype_named(one.dtype)) for one in self.described.outputs)

    @property
    def allowance(self) -> Allowance:
        """The longest dimension of an input may be summed."""
        floating = next((one.dtype for one in self.described.outputs if one.dtype in DTYPES), "")
        return allowance_of_unknown(floating, max((max(one.shape, default=1) for one in self.arrays), default=1))

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        made = (torch.empty(one.shape, dtype=dtype_named(one.dtype), device=device) for one in self.arrays)
        return Inputs(tuple(made), {})

    def output_like(self, inputs: Inputs) -> Like | tuple[Like, ...]:
        return self.likes if len(self.likes) > 1 else self.likes[0]

    def why_not(self, free_bytes: int) -> str:
        """Why it cannot be measured here, as a sentence; empty if it can."""
        for one in (dtype_named(array.dtype) for array in self.described.outputs):
            if one.is_complex or (one.is_floating_point and one.itemsize == 1):
                return f"its reference returns {one}: an output has real numbers of 16 bits or more, or truth values"
        needed = sum(_bytes(one) for one in (*self.arrays, *self.described.outputs))
        return (
            f"one call has {size(needed)} of inputs and outputs; {size(free_bytes)} are free"
            if (needed > SHARE * free_bytes)
            else ""
        )

    def calling(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the tensors alone: the values between them stay."""
        arguments: list[Argument] = self.described.arguments
        if self.described.packed:
            call = packed(call)
        if self.described.parts:
            call = in_turn(call, [one.arguments for one in self.described.parts])
        if all(one.array for one in arguments):
            return call
        filled = self.filling()
        return lambda *tensors: call(*filled(tensors))

    def filling(self) -> Callable[[Sequence[Any]], list[Any]]:
        """A function that puts tensors between the values that stay."""
        arguments: list[Argument] = self.described.arguments
        places = [number for number, one in enumerate(arguments) if one.array]
        fixed = [one.value for one in arguments]

        def filled(tensors: Sequence[Any]) -> list[Any]:
            given = fixed.copy()
            for place, tensor in zip(places, tensors, strict=True):
                given[place] = tensor
            return given

        return filled


def packed(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one tuple as one of its parts."""
    return lambda *parts: call(parts)


def in_turn(call: Callable[..., Any], counts: list[int]) -> Callable[..., Any]:
    """A function that is called with so many arguments each time, as one of all arguments. Returns all outputs."""

    def run(*given: Any) -> tuple[Any, ...]:
        found: list[Any] = []
        for part in cut(given, counts):
            out = call(*part)
            found += out if isinstance(out, tuple | list) else [out]
        return tuple(found)

    return run


def cut(values: Sequence[Any], counts: Iterable[int]) -> Iterator[list[Any]]:
    """Consecutive pieces of these lengths."""
    start = 0
    for count in counts:
        yield list(values[start : start + count])
        start += count


def _bytes(one: Array) -> int:
    return math.prod(one.shape) * dtype_named(one.dtype).itemsize


def dtype_named(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"there is no dtype {name}")
    return found


class Given(Reference):
    """Correct values that another process computed."""

    def __init__(self, problem: Brought, inputs: Inputs, values: Values, pooled: list[dict[str, float]]) -> None:
        super().__init__(problem, inputs, 0, True)
        self.values, self._pooled = values, pooled

    def pieces(self) -> Iterator[Piece]:
        return self.values.pieces()

    def pooled(self) -> list[dict[str, float]]:
        return self._pooled


class Values:
    """What the reference returns for one input set, copied out of its process."""

    def __init__(
        self, plain: list[torch.Tensor], exact: list[torch.Tensor], nudged: Sequence[torch.Tensor] = ()
    ) -> None:
        self.plain, self.exact, self.nudged = plain, exact, nudged

    def why_not(self, likes: tuple[Like, ...]) -> str:
        """Why these are not values of such outputs; empty if they are."""
        for name, found in (("outputs", self.plain), ("exact outputs", self.exact)):
            if found and [tuple(one.shape) for one in found] != [shape for shape, _ in likes]:
                return f"the reference's {name} do not have the shapes of its first ones"
        if [one.dtype for one in self.plain] != [dtype for _, dtype in likes]:
            return "the reference's outputs do not have the dtypes of its first ones"
        if self.nudged and [(one.shape[1:], one.dtype) for one in self.nudged] != [
            (one.shape, one.dtype) for one in self.exact
        ]:
            return "the reference's answers for nudged inputs do not have the shapes and dtypes of its exact ones"
        for one, exact in zip(self.plain, self.exact, strict=False):
            if one.is_floating_point() and not exact.is_floating_point():
                return f"the reference's outputs of {one.dtype} are {exact.dtype} where they are exact"
            if one.is_floating_point() and not torch.isfinite(exact).any():
                return "the reference's output is nowhere finite on its own inputs: it judges nothing"
            if not one.is_floating_point() and exact.dtype != one.dtype:
                return f"the reference's outputs of {one.dtype} are {exact.dtype} where they are exact"
        return ""

    def pieces(self) -> Iterator[Piece]:
        """Whole outputs. Those of floating-point numbers need exact values; without, others are right as they are."""
        for number, one in enumerate(self.plain):
            if self.exact or not one.is_floating_point():
                right, yard = as_held(self.exact[number], one) if self.exact else (one, one)
                nudged = nudged_piece(self.nudged[number]) if self.nudged else None
                yield Piece(None, right[None], yard[None], output=number, nudged=nudged)
