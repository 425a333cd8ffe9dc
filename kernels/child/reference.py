"""The right answer for given inputs, and how far an output is from it: numbers, no judgement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from kernels.child import outputs
from kernels.dtypes import DTYPES
from kernels.operations.base import Inputs, Like, Operation, Piece

SHORTEST_ROW = 16
"""Shorter rows (last dimension) are not measured alone: one small number would make any relative error large."""


class Reference:
    """The right answer for one seed's inputs, in pieces: kept where it is small, made again where it is large."""

    KEEP_BYTES = 2**28

    def __init__(
        self, problem: Operation, inputs: Inputs, seed: int, thorough: bool, distribution: str = "normal"
    ) -> None:
        self.problem, self.inputs, self.seed, self.thorough = problem, inputs, seed, thorough
        self.distribution = distribution
        self._kept: list[Any] | None = None

    def pieces(self) -> Any:
        if self._kept is None:
            likes = outputs.likes(self.problem, self.inputs)
            if sum(math.prod(shape) for shape, _ in likes) * 8 > self.KEEP_BYTES:
                return self.problem.check(self.inputs, self.seed, self.thorough)
            self._kept = list(self.problem.check(self.inputs, self.seed, self.thorough))
        return self._kept


def measure(out: Any, reference: Reference) -> dict[str, Any]:
    """How far `out` is from the reference, beside how far the yardstick is. Numbers, no judgement.

    max_abs, yard_abs: largest absolute errors; rounding: the error of the dtype itself on the right answer; largest: of
    the right answer; fits: whether that is far from the dtype's largest number;
    frobenius, yard_frobenius: relative; row, yard_row: the same of the worst row; nonfinite: elements that are NaN or
    Inf where the reference is not; constant: every element is the same where the reference's are not.
    eps: the relative spacing of the dtype, only where the output is a single number (0-d).
    dtype: of the output, only where it is a dtype of the table other than the workload's.
    Or wrong_kind alone: why the output is no tensor, or none of the right kind.

    Of several outputs: the reading of the one that is furthest off, and "outputs": a reading of each, with its number
    "output", from 1, and how many there are, "of".
    """
    likes = outputs.likes(reference.problem, reference.inputs)
    outs = outputs.as_tuple(outputs.plain(out)) if len(likes) > 1 else (out,)
    device = reference.inputs.tensors[0].device
    if why := _wrong_kinds(outs, likes, device):
        return {"wrong_kind": why}
    errors = [_Errors(like) for like in likes]
    for piece in reference.pieces():
        errors[piece.output].add(piece, outs[piece.output])
    readings = [each.reading(reference) for each in errors]
    if len(readings) == 1:
        return readings[0]
    return _together([r | {"output": number, "of": len(readings)} for number, r in enumerate(readings, 1)])


def noted(reading: dict[str, Any], **facts: Sequence[Any]) -> dict[str, Any]:
    """A reading with more facts. Each is given as a list, of each output one."""
    if "outputs" not in reading:
        return reading | {name: max(values, default=0) for name, values in facts.items()}
    each = enumerate(reading["outputs"])
    return _together([one | {name: values[i] for name, values in facts.items()} for i, one in each])


def _together(readings: list[dict[str, Any]]) -> dict[str, Any]:
    return max(readings, key=lambda reading: reading["frobenius"]) | {"outputs": readings}


class _Errors:
    """The errors of one output, piece after piece."""

    def __init__(self, like: Like) -> None:
        self.shape, self.dtype = like
        names = ("max_abs", "yard_abs", "rounding", "largest", "max_rel", "row", "yard_row")
        self.totals = dict.fromkeys(names, 0.0)
        self.squares = dict.fromkeys(("error", "yard", "reference"), 0.0)
        self.nonfinite, self.close = 0, True
        self.seen, self.wanted = (math.inf, -math.inf), (math.inf, -math.inf)

    def add(self, piece: Piece, out: torch.Tensor) -> None:
        right, got, yard = piece.reference, out[piece.index].to(piece.reference.dtype), piece.yardstick
        rounded = right.to(self.dtype)
        shaken = ((rounded + 0.3) - 0.3).to(right.dtype) - rounded.to(right.dtype)
        error, yard_error = (got - right).abs(), (yard.to(right.dtype) - right).abs()
        if rounded is not right:
            rounded.fill_(math.nan)  # freed, it could pass for a kernel's work
        self.nonfinite += int((~torch.isfinite(got) & torch.isfinite(right)).sum())
        error = torch.nan_to_num(error, nan=math.inf)
        self._at_least("max_abs", error.max())
        self._at_least("yard_abs", yard_error.max())
        self._at_least("rounding", shaken.abs().max())
        self._at_least("largest", right.abs().max())
        self._at_least("max_rel", (error / right.abs().clamp_min(1e-3)).max())
        self._at_least("row", _worst_row(error, right))
        self._at_least("yard_row", _worst_row(yard_error, right))
        for name, values in (("error", error), ("yard", yard_error), ("reference", right)):
            self.squares[name] += float(values.square().sum(dtype=torch.float64))
        self.close = self.close and bool((error <= 1e-2 + 1e-2 * right.abs()).all())
        self.seen, self.wanted = _extremes(self.seen, got), _extremes(self.wanted, right)

    def _at_least(self, name: str, value: Any) -> None:
        self.totals[name] = max(self.totals[name], float(value))

    def reading(self, reference: Reference) -> dict[str, Any]:
        scale = math.sqrt(self.squares["reference"]) or 1.0
        found = self.totals | {
            "distribution": reference.distribution,
            "fits": self.totals["largest"] < torch.finfo(self.dtype).max / 2,
            "frobenius": math.sqrt(self.squares["error"]) / scale,
            "yard_frobenius": math.sqrt(self.squares["yard"]) / scale,
            "nonfinite": self.nonfinite,
            "allclose_1e-2": self.close,
            "constant": self.seen[0] == self.seen[1] and self.wanted[0] != self.wanted[1],
        }
        if self.shape == ():
            found["eps"] = torch.finfo(self.dtype).eps
        if (name := str(self.dtype).removeprefix("torch.")) in DTYPES and name != reference.problem.dtype:
            found["dtype"] = name
        return found


def _worst_row(error: torch.Tensor, right: torch.Tensor) -> float:
    """The largest relative error of a row; 0 where rows are too short to be judged alone, or the output is one number."""
    if not right.ndim or right.shape[-1] < SHORTEST_ROW:
        return 0.0
    return float((error.norm(dim=-1) / right.norm(dim=-1).clamp_min(1e-30)).max())


def _extremes(so_far: tuple[float, float], values: torch.Tensor) -> tuple[float, float]:
    return min(so_far[0], float(values.min())), max(so_far[1], float(values.max()))


def _wrong_kinds(outs: Sequence[Any], likes: Sequence[Like], device: torch.device) -> str:
    """What is wrong with the outputs as objects, the first of them: an empty string if nothing is."""
    if len(outs) != len(likes):
        one = f"one {_kind(outs[0])}" if len(outs) == 1 else f"{len(outs)} outputs"
        return f"returned {one}, not a tuple of {len(likes)} tensors"
    for number, (out, like) in enumerate(zip(outs, likes, strict=True), 1):
        if why := _wrong_kind(out, *like, device):
            return why if len(likes) == 1 else f"output {number} of {len(likes)}: {why}"
    return ""


def _wrong_kind(out: Any, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> str:
    """What is wrong with the output as an object: an empty string if it is a plain tensor of the right kind."""
    if type(out) is not torch.Tensor:
        return f"returned a {_kind(out)}, not a torch.Tensor"
    if tuple(out.shape) != shape:
        return f"returned shape {tuple(out.shape)}, not {shape}"
    if out.dtype != dtype:
        return f"returned {out.dtype}, not {dtype}"
    if out.device != device:
        return f"returned a tensor on {out.device}, not on {device}"
    return ""


def _kind(out: Any) -> str:
    return f"{type(out).__module__}.{type(out).__name__}"
