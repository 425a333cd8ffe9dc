"""Correctness: an output's error against an exact reference, judged by the error of eager PyTorch in the same dtype.

The child measures errors (kernels/child/reference.py); `judge` decides. A fixed tolerance would reject correct bf16
kernels and accept wrong fp16 ones. So the yardstick is eager PyTorch in the workload's own dtype. It is never the
baseline, which is judged by the same rule. kernels/dtypes.py holds the allowed factors.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from kernels.dtypes import DTYPES

ROW_FACTOR = 4
"""Row limit: worst row error / yardstick's worst row error. One wrong row is invisible in whole-output errors. Shorter
rows are not judged alone: one small number would make any error large."""
EXACT_FACTOR = 2
"""The same for outputs of whole numbers: elements that differ, and how far they are off."""

INPUTS = {"uniform": "uniform inputs", "outliers": "inputs with outlier rows", "x30": "inputs 30 times as large"}


def why_wrong(reading: dict[str, Any], dtype: str) -> str:
    """Judges one reading of `measure`: empty if the output is correct, else the reason as a sentence."""
    return _named(reading, _why_wrong(reading, reading.get("dtype", dtype)))


def _named(reading: dict[str, Any], why: str) -> str:
    """Adds the number of the output, if there are several."""
    return f"output {reading['output']} of {reading['of']}: {why}" if why and "of" in reading else why


def _why_wrong(reading: dict[str, Any], dtype: str) -> str:
    if reading.get("wrong_kind"):
        return reading["wrong_kind"]
    if reading.get("late"):
        return "the output changed after the call returned"
    if reading.get("unwritten"):
        return f"{reading['unwritten']} elements of the output were never written"
    if reading.get("unchecked"):
        return ""
    if "mismatches" in reading:
        return _why_differs(reading)
    if reading["nonfinite"] and reading.get("fits", True) and not _overflows(reading):
        return f"{reading['nonfinite']} elements are NaN or Inf; the correct values are finite"
    if why_not_judged(reading, dtype):
        return ""
    more, slack = _more(reading, dtype), DTYPES[dtype].slack
    factor = more * DTYPES[dtype].factor
    yard_abs, yard_frobenius = _yard(reading)
    bound = factor * yard_abs + 2 * (reading["rounding"] + slack * reading["largest"])
    if not reading["max_abs"] <= bound:
        return f"largest error {reading['max_abs']:.3g}, allowed {bound:.3g} (from eager PyTorch's own error)"
    cap = min(factor * yard_frobenius + slack, DTYPES[dtype].frobenius_cap)
    if not reading["frobenius"] <= cap:
        return f"relative Frobenius error {reading['frobenius']:.3g}, allowed {cap:.3g}"
    worst = more * ROW_FACTOR * (reading["yard_row"] + slack)
    if not reading["row"] <= worst:
        return f"relative error of a row {reading['row']:.3g}, allowed {worst:.3g}"
    if reading.get("constant"):
        return "every element of the output is the same"
    return ""


def _why_differs(reading: dict[str, Any]) -> str:
    """Whole numbers and truth values must be those of the reference, but for as many as eager PyTorch has wrong."""
    allowed, count = EXACT_FACTOR * reading["yard_mismatches"], reading["mismatches"]
    if count > allowed:
        than = f", allowed {allowed} (from eager PyTorch's own)" if allowed else ""
        return f"{count} of {reading['elements']} elements differ{than}"
    if reading["levels"] and reading["max_abs"] > (bound := EXACT_FACTOR * reading["yard_abs"]):
        return f"largest difference {reading['max_abs']:g}, allowed {bound:g} (from eager PyTorch's own error)"
    return "every element of the output is the same" if reading["constant"] else ""


def _more(reading: dict[str, Any], dtype: str) -> int:
    return 1 if reading.get("distribution", "normal") == "normal" else DTYPES[dtype].unusual


def _yard(reading: dict[str, Any]) -> tuple[float, float]:
    """Absolute and relative error of the yardstick. On a single number it may be 0 by chance: it counts as at least one
    unit in the last place."""
    eps = reading.get("eps", 0.0)
    return max(reading["yard_abs"], eps * reading["largest"]), max(reading["yard_frobenius"], eps)


def _overflows(reading: dict[str, Any]) -> bool:
    """Eager PyTorch itself returns NaN on these unusual inputs: from head dim 128, fp16 scores of x30 overflow."""
    return reading.get("distribution", "normal") != "normal" and math.isnan(reading["yard_frobenius"])


def why_not_judged(reading: dict[str, Any], dtype: str) -> str:
    """Why these inputs are not judged; empty if they are.

    Attention scores at 30 times the size lose so much in 16 bits that eager PyTorch is far off, too.
    """
    if reading.get("distribution", "normal") == "normal" or "mismatches" in reading:
        return ""
    return _named(reading, _why_not_judged(reading, reading.get("dtype", dtype)))


def _why_not_judged(reading: dict[str, Any], dtype: str) -> str:
    if not reading["fits"]:
        return f"the right answer ({reading['largest']:.3g}) does not fit {dtype}"
    if _overflows(reading):
        return "eager PyTorch itself gives NaN here"
    if not _more(reading, dtype) * DTYPES[dtype].factor * reading["yard_frobenius"] <= DTYPES[dtype].frobenius_cap:
        return f"eager PyTorch itself is wrong by {reading['yard_frobenius']:.3g} here"
    return ""


def _said(reading: dict[str, Any], dtype: str) -> str:
    if why := why_wrong(reading, dtype):
        return f"wrong: {why}"
    return f"not judged: {why}" if (why := why_not_judged(reading, dtype)) else "right"


def _how_far_off(reading: dict[str, Any], dtype: str) -> tuple[float, float]:
    """The relative error as a multiple of the dtype's cap, and as measured."""
    error = reading.get("frobenius", math.inf)
    return error / DTYPES[reading.get("dtype", dtype)].frobenius_cap, error


def judge(readings: list[dict[str, Any]], dtype: str, flags: dict[str, Any] | None = None) -> dict[str, Any]:
    """The verdict on a kernel from its readings, one per seed, and its flags.

    Each of several outputs is judged alone, by its own dtype.

    flags: inputs_changed, shared (calls share one output): booleans.
    Returns {"correct": bool, or None if there are no correct values, "why": str, ...worst reading}; `why` is empty if correct.
    """
    flags, seeds = flags or {}, len(readings)
    readings = [one for reading in readings for one in reading.get("outputs", [reading])]
    said: dict[str, str] = {}
    why = ""
    for reading in sorted(readings, key=lambda reading: not reading.get("late")):  # it explains errors elsewhere
        kind = reading.get("distribution", "normal")
        if reason := why_wrong(reading, dtype):
            why = why or (reason if kind == "normal" else f"on {INPUTS[kind]}: {reason}")
        if not said.get(kind, "").startswith("wrong"):
            said[kind] = _said(reading, dtype)
    if not why and flags.get("inputs_changed"):
        why = "the kernel changed its inputs"
    if not why and flags.get("shared"):
        why = "calls share one output: a later call overwrote or returned an earlier one"
    usual = [r for r in readings if r.get("distribution", "normal") == "normal"]
    worst = max(usual or readings, key=partial(_how_far_off, dtype=dtype))
    unknown = any(reading.get("unchecked") for reading in readings)
    correct = False if why else None if unknown else True
    found = {"correct": correct, "why": why, "seeds": seeds} | flags | worst
    return found | ({"distributions": said} if len(said) > 1 else {})
