"""The correct values for given inputs, and the errors of an output. Numbers, no judgement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch

from kernels.child import outputs
from kernels.child.errors import POOLED, errors_of
from kernels.child.exact import ExactErrors
from kernels.child.nudges import error_of
from kernels.operations.base import Distribution, Inputs, Like, Operation, Piece


class Reference:
    """The correct values for one seed's inputs, in pieces: kept if there is room, otherwise computed for each kernel."""

    KEEP_BYTES, KEEP_SHARE = 2**28, 1 / 16
    """Bytes of the pieces that are kept; on a GPU this share of its free memory, if that is more."""

    def __init__(
        self, problem: Operation, inputs: Inputs, seed: int, thorough: bool, distribution: Distribution = "normal"
    ) -> None:
        self.problem, self.seed, self.thorough = problem, seed, thorough
        self.distribution, self.device = distribution, str(inputs.tensors[0].device)
        self._inputs: Inputs | None = inputs
        self._kept: list[Piece] | None = None

    @property
    def inputs(self) -> Inputs:
        """What the kernel is called with. Drawn again if they were let go."""
        if self._inputs is None:
            self._inputs = self.problem.inputs(self.device, self.seed, self.distribution)
        return self._inputs

    @property
    def held_bytes(self) -> int:
        """Of the inputs."""
        return self._inputs.nbytes if self._inputs else 0

    def let_go(self) -> None:
        """Frees inputs and pieces: both are made again when they are asked for."""
        self._inputs = self._kept = None

    def pieces(self) -> Iterable[Piece]:
        return self._computed() if self._kept is None else self._kept

    def _computed(self) -> Iterator[Piece]:
        kept: list[Piece] = []
        room = self._room()
        for piece in self.problem.check(self.inputs, self.seed, self.thorough):
            if (room := room - piece.nbytes) >= 0:
                kept.append(piece)
            else:
                kept.clear()
            yield piece
        if room >= 0:
            self._kept = kept

    def _room(self) -> int:
        if not self.device.startswith("cuda"):
            return self.KEEP_BYTES
        free, _ = torch.cuda.mem_get_info(self.device)
        return max(self.KEEP_BYTES, int(self.KEEP_SHARE * free))

    def pooled(self) -> list[dict[str, float]]:
        """For each output: what POOLED seeds show of the yardstick."""
        return _pooled(self.problem, self.device, self.distribution)


def measure(out: Any, reference: Reference) -> dict[str, Any]:
    """Errors of `out` and of the yardstick against the reference. Numbers, no judgement.

    max_abs, yard_abs: largest absolute errors. rounding: the dtype's own error on the correct values. largest: largest
    correct value. fits: it is far from the dtype's largest number.
    frobenius, yard_frobenius: relative errors. rounded_frobenius: that of rounding alone, where the dtype rounds
    values coarsely because they are small; else 0. row, yard_row: those of the worst row. column, yard_column: those of
    the worst column, see columns.py; only on N(0, 1).
    nonfinite: NaN or Inf elements where the reference is finite. nonfinite_places, ...: elements where it is not, see
    nonfinite.py; no other number counts them. constant: all elements are equal, but not the
    reference's, rounded to the dtype.
    eps: relative spacing of the dtype; only if the output is a single number (0-d).
    elements: of the output.
    pooled: seeds whose largest error is yard_abs, and whose largest value is largest; only if the output has few
    elements.
    slope, ...: systematic errors, see slope.py. slope_allowed, roundings, terms, dominated: what the operation allows.
    alone: {part: [relative error, yardstick's]} of parts that are judged on their own.
    dtype: of the output; only if it is in the table and not that of the inputs.
    Or wrong_kind alone: why the output is not a tensor of the right kind.
    unchecked: the operation has no correct values for this output; all errors are then 0.
    Outputs of whole numbers or truth values: see exact.py.

    Several outputs: the reading of the worst one, and "outputs": a reading of each, with its number "output" (from 1)
    and their count "of".
    """
    likes = outputs.likes(reference.problem, reference.inputs)
    outs = outputs.as_tuple(outputs.plain(out)) if len(likes) > 1 else (out,)
    device = reference.inputs.tensors[0].device
    if why := _wrong_kinds(outs, likes, device):
        return {"wrong_kind": why}
    errors = [errors_of(like, reference.distribution) for like in likes]
    unchecked = set(range(len(likes)))
    for piece in reference.pieces():
        errors[piece.output].add(piece, outs[piece.output])
        unchecked.discard(piece.output)
    readings = [
        {"unchecked": True} | ExactErrors(likes[n], reference.distribution).reading(reference, n)
        if n in unchecked
        else each.reading(reference, n)
        for n, each in enumerate(errors)
    ]
    if len(readings) == 1:
        return readings[0]
    return _together([r | {"output": number, "of": len(readings)} for number, r in enumerate(readings, 1)])


def with_facts(reading: dict[str, Any], **facts: Sequence[Any]) -> dict[str, Any]:
    """Adds facts to a reading. Each fact is a list: one value per output."""
    if "outputs" not in reading:
        return reading | {name: max(values, default=0) for name, values in facts.items()}
    each = enumerate(reading["outputs"])
    return _together([one | {name: values[i] for name, values in facts.items()} for i, one in each])


def _together(readings: list[dict[str, Any]]) -> dict[str, Any]:
    return max(readings, key=lambda reading: reading["frobenius"]) | {"outputs": readings}


@lru_cache(maxsize=8)
def _pooled(problem: Operation, device: str, distribution: Distribution) -> list[dict[str, float]]:
    """The yardstick's largest errors, absolute and of the whole, and the largest value, on inputs of POOLED seeds, for each
    output."""
    found = no_pool(len(outputs.likes(problem, problem.inputs(device, 0, distribution))))
    for seed in range(POOLED):
        into_pool(found, problem.check(problem.inputs(device, seed, distribution), seed, thorough=False))
    return found


def no_pool(count: int) -> list[dict[str, float]]:
    return [{"yard_abs": 0.0, "largest": 0.0, "frobenius": 0.0} for _ in range(count)]


def into_pool(found: list[dict[str, float]], pieces: Iterable[Piece]) -> None:
    """Adds what one seed's pieces show of the yardstick."""
    squares = [[0.0, 0.0] for _ in found]
    for piece in pieces:
        right = piece.reference[kept := torch.isfinite(piece.reference)]
        if not right.numel():
            continue
        error = error_of(piece.yardstick.to(right.dtype), piece.reference, piece.nudged)[kept]
        of = found[piece.output]
        if not piece.alone:
            for number, values in enumerate((error, right)):
                squares[piece.output][number] += float(values.square().sum(dtype=torch.float64))
        of["yard_abs"] = max(of["yard_abs"], float(error.abs().max()))
        of["largest"] = max(of["largest"], float(right.abs().max()))
    for of, (wrong, right) in zip(found, squares, strict=True):
        of["frobenius"] = max(of["frobenius"], math.sqrt(wrong / right) if right else 0.0)


def _wrong_kinds(outs: Sequence[Any], likes: Sequence[Like], device: torch.device) -> str:
    """Why the first faulty output is not of the right kind; empty if all are."""
    if len(outs) != len(likes):
        one = f"one {_kind(outs[0])}" if len(outs) == 1 else f"{len(outs)} outputs"
        return f"returned {one}, not a tuple of {len(likes)} tensors"
    for number, (out, like) in enumerate(zip(outs, likes, strict=True), 1):
        if why := _wrong_kind(out, *like, device):
            return why if len(likes) == 1 else f"output {number} of {len(likes)}: {why}"
    return ""


def _wrong_kind(out: Any, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> str:
    """Why the output is not a plain tensor of the right kind; empty if it is."""
    if why := outputs.why_not_plain(out):
        return why
    if tuple(out.shape) != shape:
        return f"returned shape {tuple(out.shape)}, not {shape}"
    if out.dtype != dtype:
        return f"returned {out.dtype}, not {dtype}"
    if out.device != device:
        return f"returned a tensor on {out.device}, not on {device}"
    return ""


def _kind(out: Any) -> str:
    return f"{type(out).__module__}.{type(out).__name__}"
