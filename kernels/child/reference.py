"""The right answer for given inputs, and how far an output is from it: numbers, no judgement."""

from __future__ import annotations

import math
from typing import Any

import torch

from kernels.operations.base import Inputs, Operation

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
            shape, _ = self.problem.output_like(self.inputs)
            if math.prod(shape) * 8 > self.KEEP_BYTES:
                return self.problem.check(self.inputs, self.seed, self.thorough)
            self._kept = list(self.problem.check(self.inputs, self.seed, self.thorough))
        return self._kept


def measure(out: Any, reference: Reference) -> dict[str, Any]:
    """How far `out` is from the reference, beside how far the yardstick is. Numbers, no judgement.

    max_abs, yard_abs: largest absolute errors; rounding: the error of the dtype itself on the right answer; largest: of
    the right answer; fits: whether that is far from the dtype's largest number;
    frobenius, yard_frobenius: relative; row, yard_row: the same of the worst row; nonfinite: elements that are NaN or
    Inf where the reference is not; constant: every element is the same where the reference's are not.
    """
    shape, dtype = reference.problem.output_like(reference.inputs)
    device = reference.inputs.tensors[0].device
    wrong_kind = _wrong_kind(out, shape, dtype, device)
    if wrong_kind:
        return {"wrong_kind": wrong_kind}
    totals = dict.fromkeys(("max_abs", "yard_abs", "rounding", "largest", "max_rel", "row", "yard_row"), 0.0)
    squares = dict.fromkeys(("error", "yard", "reference"), 0.0)
    nonfinite, close = 0, True
    seen, wanted = (math.inf, -math.inf), (math.inf, -math.inf)
    for piece in reference.pieces():
        right, got, yard = piece.reference, out[piece.index].to(piece.reference.dtype), piece.yardstick
        rounded = right.to(dtype)
        shaken = ((rounded + 0.3) - 0.3).to(right.dtype) - rounded.to(right.dtype)
        error, yard_error = (got - right).abs(), (yard.to(right.dtype) - right).abs()
        if rounded is not right:
            rounded.fill_(math.nan)  # freed, it could pass for a kernel's work
        nonfinite += int((~torch.isfinite(got) & torch.isfinite(right)).sum())
        error = torch.nan_to_num(error, nan=math.inf)
        totals["max_abs"] = max(totals["max_abs"], float(error.max()))
        totals["yard_abs"] = max(totals["yard_abs"], float(yard_error.max()))
        totals["rounding"] = max(totals["rounding"], float(shaken.abs().max()))
        totals["largest"] = max(totals["largest"], float(right.abs().max()))
        totals["max_rel"] = max(totals["max_rel"], float((error / right.abs().clamp_min(1e-3)).max()))
        totals["row"] = max(totals["row"], _worst_row(error, right))
        totals["yard_row"] = max(totals["yard_row"], _worst_row(yard_error, right))
        squares["error"] += float(error.square().sum(dtype=torch.float64))
        squares["yard"] += float(yard_error.square().sum(dtype=torch.float64))
        squares["reference"] += float(right.square().sum(dtype=torch.float64))
        close = close and bool((error <= 1e-2 + 1e-2 * right.abs()).all())
        seen, wanted = _extremes(seen, got), _extremes(wanted, right)
    scale = math.sqrt(squares["reference"]) or 1.0
    return totals | {
        "distribution": reference.distribution,
        "fits": totals["largest"] < torch.finfo(dtype).max / 2,
        "frobenius": math.sqrt(squares["error"]) / scale,
        "yard_frobenius": math.sqrt(squares["yard"]) / scale,
        "nonfinite": nonfinite,
        "allclose_1e-2": close,
        "constant": seen[0] == seen[1] and wanted[0] != wanted[1],
    }


def _worst_row(error: torch.Tensor, right: torch.Tensor) -> float:
    """The largest relative error of a row; 0 where rows are too short to be judged alone."""
    if right.shape[-1] < SHORTEST_ROW:
        return 0.0
    return float((error.norm(dim=-1) / right.norm(dim=-1).clamp_min(1e-30)).max())


def _extremes(so_far: tuple[float, float], values: torch.Tensor) -> tuple[float, float]:
    return min(so_far[0], float(values.min())), max(so_far[1], float(values.max()))


def _wrong_kind(out: Any, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> str:
    """What is wrong with the output as an object: an empty string if it is a plain tensor of the right kind."""
    if type(out) is not torch.Tensor:
        return f"returned a {type(out).__module__}.{type(out).__name__}, not a torch.Tensor"
    if tuple(out.shape) != shape:
        return f"returned shape {tuple(out.shape)}, not {shape}"
    if out.dtype != dtype:
        return f"returned {out.dtype}, not {dtype}"
    if out.device != device:
        return f"returned a tensor on {out.device}, not on {device}"
    return ""
