"""Is it right? Measured against an exact reference, judged by the error that plain PyTorch has in the same dtype.

`measure` runs in the child and returns numbers only; `judge` runs in the parent and says what they mean. A fixed
tolerance would reject right bf16 kernels and pass wrong fp16 ones, so the yardstick is eager PyTorch in the workload's
own dtype, never the baseline under test: the baseline is judged by the same rule.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from kernels.operations.base import Inputs, Operation

FROBENIUS_CAP = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5}
"""Largest relative Frobenius error of any right kernel, per dtype."""
FACTOR = {"float16": 2, "bfloat16": 2, "float32": 4}
"""A kernel may be this many times as wrong as the yardstick. In float32 both errors are chance, of the order of summing:
on an H200 PyTorch's own kernels reach 2.3 times; the next that is wrong, tf32, is a hundred times further away."""
UNUSUAL = {"float16": 1, "bfloat16": 1, "float32": 8}
"""So many times more on inputs other than N(0, 1). There an error of float32 hangs on a few large scores, and kernels written
as plain loops are further from the yardstick by chance."""
SLACK = {"float16": 0.0, "bfloat16": 0.0, "float32": 2**-23}
"""Relative error that is allowed beside it, for one key has a yardstick without error: products of three tf32 parts, as
PyTorch takes for float32, lose the last bit."""
ROW_FACTOR, SHORTEST_ROW = 4, 16
"""No row (last dimension) may be this many times as wrong as the yardstick's worst row: one wrong row among many right
ones shows in no error of the whole. Shorter rows are not judged alone: one small number would make any error large."""


INPUTS = {"uniform": "uniform inputs", "outliers": "inputs with outlier rows", "x30": "inputs 30 times as large"}


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
    import torch

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
    import torch

    if type(out) is not torch.Tensor:
        return f"returned a {type(out).__module__}.{type(out).__name__}, not a torch.Tensor"
    if tuple(out.shape) != shape:
        return f"returned shape {tuple(out.shape)}, not {shape}"
    if out.dtype != dtype:
        return f"returned {out.dtype}, not {dtype}"
    if out.device != device:
        return f"returned a tensor on {out.device}, not on {device}"
    return ""


def why_wrong(reading: dict[str, Any], dtype: str) -> str:
    """Judges one reading of `measure`: an empty string if the output is right, else the reason as a sentence."""
    if reading.get("wrong_kind"):
        return reading["wrong_kind"]
    if reading.get("late"):
        return "the output was not complete when the call had returned: it changed afterwards"
    if reading.get("unwritten"):
        return f"{reading['unwritten']} elements of the output were never written"
    if reading["nonfinite"] and reading.get("fits", True) and not _overflows(reading):
        return f"{reading['nonfinite']} elements are NaN or Inf where the right answer is finite"
    if why_not_judged(reading, dtype):
        return ""
    more, slack = _more(reading, dtype), SLACK[dtype]
    factor = more * FACTOR[dtype]
    bound = factor * reading["yard_abs"] + 2 * (reading["rounding"] + slack * reading["largest"])
    if not reading["max_abs"] <= bound:
        return f"largest error {reading['max_abs']:.3g}, allowed {bound:.3g} (from eager PyTorch's own error)"
    cap = min(factor * reading["yard_frobenius"] + slack, FROBENIUS_CAP[dtype])
    if not reading["frobenius"] <= cap:
        return f"relative Frobenius error {reading['frobenius']:.3g}, allowed {cap:.3g}"
    worst = more * ROW_FACTOR * (reading["yard_row"] + slack)
    if not reading["row"] <= worst:
        return f"relative error of a row {reading['row']:.3g}, allowed {worst:.3g}"
    if reading.get("constant"):
        return "the output is one constant"
    return ""


def _more(reading: dict[str, Any], dtype: str) -> int:
    return 1 if reading.get("distribution", "normal") == "normal" else UNUSUAL[dtype]


def _overflows(reading: dict[str, Any]) -> bool:
    """Eager PyTorch itself gives NaN on these unusual inputs: at head dim 128 and more, fp16 scores of x30 overflow."""
    return reading.get("distribution", "normal") != "normal" and math.isnan(reading["yard_frobenius"])


def why_not_judged(reading: dict[str, Any], dtype: str) -> str:
    """Why inputs other than normal ones say nothing of a kernel: an empty string if they do.

    Scores of attention at 30 times the size are rounded so much in 16 bits that plain PyTorch is far off, too.
    """
    if reading.get("distribution", "normal") == "normal":
        return ""
    if not reading["fits"]:
        return f"the right answer ({reading['largest']:.3g}) does not fit {dtype}"
    if _overflows(reading):
        return "eager PyTorch itself gives NaN here"
    if not _more(reading, dtype) * FACTOR[dtype] * reading["yard_frobenius"] <= FROBENIUS_CAP[dtype]:
        return f"eager PyTorch itself is wrong by {reading['yard_frobenius']:.3g} here"
    return ""


def _said(reading: dict[str, Any], dtype: str) -> str:
    if why := why_wrong(reading, dtype):
        return f"wrong: {why}"
    return f"not judged: {why}" if (why := why_not_judged(reading, dtype)) else "right"


def judge(readings: list[dict[str, Any]], dtype: str, flags: dict[str, Any] | None = None) -> dict[str, Any]:
    """The verdict on a kernel from its readings, one per seed, and the flags seen beside them.

    flags: inputs_changed, shared (calls share one output): booleans.
    Returns {"correct": bool, "why": str, ...worst reading}; `why` is empty when correct.
    """
    flags = flags or {}
    said: dict[str, str] = {}
    why = ""
    for reading in sorted(readings, key=lambda reading: not reading.get("late")):  # it explains errors elsewhere
        kind = reading.get("distribution", "normal")
        if reason := why_wrong(reading, dtype):
            why = why or (reason if kind == "normal" else f"on {INPUTS[kind]}: {reason}")
        if not said.get(kind, "").startswith("wrong"):
            said[kind] = _said(reading, dtype)
    if not why and flags.get("inputs_changed"):
        why = "it changed its inputs"
    if not why and flags.get("shared"):
        why = "calls share one output: a later call overwrote an earlier one's, or returned it again"
    usual = [r for r in readings if r.get("distribution", "normal") == "normal"]
    worst = max(usual or readings, key=lambda r: r.get("frobenius", math.inf))
    found = {"correct": not why, "why": why, "seeds": len(readings)} | flags | worst
    return found | ({"distributions": said} if len(said) > 1 else {})
