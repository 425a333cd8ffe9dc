"""Correctness: an output's error against an exact reference, judged by the error of eager PyTorch in the same dtype.

The child measures errors (kernels/child/reference.py); `judge` decides. A fixed tolerance would reject correct bf16
kernels and accept wrong fp16 ones. So the yardstick is eager PyTorch in the workload's own dtype. It is never the
baseline, which is judged by the same rule. kernels/dtypes.py holds the allowed factors.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from kernels.dtypes import EVERY

ROW_FACTOR = 4
"""Limit of rows and columns: the error of the worst one / that of the yardstick's worst one. One wrong row is invisible in
whole-output errors. Shorter rows are not judged alone: one small number would make any error large."""
EXACT_FACTOR = 2
"""The same for outputs of whole numbers: elements that differ, and how far they are off."""
DEVIATIONS = 3
"""Standard deviations of a count that chance may add, where the yardstick's count is chance, too."""
ANYWAY, AT_MOST = 1 / 16, 4
"""Elements that may be right under no rounding although the yardstick has none: one, and this share of those that it has wrong,
at most so many."""
SIGMAS = 5
"""Standard errors that a systematic error may be away from what is allowed."""
DOMINATED = 4
"""Extra factor, at least, where a few terms decide an output: with outlier rows, attention that rounds its scaled queries
and keys is up to 4.4 times as wrong as eager PyTorch."""
ROUNDING = 0.21
"""Relative Frobenius error of one rounding, in units of the spacing of numbers at 1."""
BY_CHANCE = 3
"""Of n elements the error of a rounding is by chance up to this share / sqrt(n) larger: three standard deviations for N(0, 1)."""
TERMS = 0.25
"""Relative error of n positive terms summed in turn, in units of the largest error of a rounding times sqrt(n)."""
LIKE_FLOAT32 = 2
"""On tails, float32 is at most this many times as wrong as the yardstick, three products of tf32 about four times."""
BEYOND = {
    "implausible": "have values that no rounding gives",
    "certain": "are wrong where rounding does not matter",
    "missing": "are not in their rows although every rounding selects them",
}
"""What whole numbers are held to where rounding decides: see kernels/child/exact.py."""
REFUSED = "the problem's own check says"
ANYTHING = 1.0
"""An allowed relative error from which on zeros would pass."""

INPUTS = {
    "uniform": "uniform inputs",
    "outliers": "inputs with outlier rows",
    "x30": "inputs 30 times as large",
    "near_constant": "nearly constant inputs",
    "large_mean": "inputs with a large mean",
    "tiny": "tiny inputs",
    "drift": "inputs whose partial sums cancel",
    "tails": "inputs that reveal products of split numbers",
    "negative": "negative inputs",
    "single": "inputs of which one term decides the mean",
}


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
    if why := why_nonfinite(reading):
        return why
    if why_not_judged(reading, dtype):
        return ""
    if why := _why_too_wrong(reading, dtype) or _why_systematic(reading, dtype) or _why_alone(reading, dtype):
        return why
    if reading.get("constant"):
        return "every element of the output is the same"
    return ""


def why_nonfinite(reading: dict[str, Any]) -> str:
    """NaN, +Inf and -Inf must be where the reference has them, and nowhere else. Empty if they are."""
    if count := reading.get("made_finite"):
        return f"{count} elements are finite where the reference is NaN or Inf"
    if count := reading.get("other_nonfinite"):
        return f"{count} elements have another of NaN, +Inf and -Inf than the reference"
    if (count := reading["nonfinite"]) and reading.get("fits", True) and not _overflows(reading):
        where = (
            " where the reference is finite" if reading.get("nonfinite_places") else "; the correct values are finite"
        )
        return f"{count} elements are NaN or Inf{where}"
    return ""


def _why_differs(reading: dict[str, Any]) -> str:
    """Whole numbers and truth values must be those of the reference, but for as many as eager PyTorch has wrong."""
    allowed, count = EXACT_FACTOR * reading["yard_mismatches"], reading["mismatches"]
    beyond = count - reading.get("excused", 0)
    if beyond > allowed:
        than = f", allowed {allowed} (from eager PyTorch's own)" if allowed else ""
        return f"{count} of {reading['elements']} elements differ{than}"
    if reading["levels"] and beyond and reading["max_abs"] > (bound := EXACT_FACTOR * reading["yard_abs"]):
        return f"largest difference {reading['max_abs']:g}, allowed {bound:g} (from eager PyTorch's own error)"
    return _why_implausible([reading]) or ("every element of the output is the same" if reading["constant"] else "")


def _why_implausible(readings: list[dict[str, Any]]) -> str:
    """Where rounding decides, an element must be what some rounding gives. Readings of one output, of several seeds: those of a
    row are judged alone."""
    known = [reading for reading in readings if reading.get("beyond")]
    wrong = sum(reading["yard_mismatches"] for reading in known)
    for name, what in BEYOND.items():
        count, yard = (sum(reading["beyond"].get(name, (0, 0))[which] for reading in known) for which in (0, 1))
        if count > (allowed := int(_with_chance(yard) + min(ANYWAY * wrong, AT_MOST))):
            of = sum(reading["elements"] for reading in known)
            return f"{count} of {of} elements {what}, allowed {allowed} (from eager PyTorch's own)"
    for reading in known:
        count, yard = reading["beyond"].get("row", (0, 0))
        if count > (allowed := int(_with_chance(yard) + 1)):
            return f"{count} elements of a row have values that no rounding gives, allowed {allowed} (from eager PyTorch's own)"
    return ""


def _with_chance(yard: int) -> float:
    """Of elements of which the yardstick has so many: both counts are chance."""
    return EXACT_FACTOR * yard + DEVIATIONS * math.sqrt((EXACT_FACTOR**2 + 1) * yard) + 1


def _why_too_wrong(reading: dict[str, Any], dtype: str) -> str:
    """Errors of elements, of the whole, of rows and of columns. The whole only, where a few terms decide an output and 16 bits
    leave those terms to chance."""
    more, info = _more(reading, dtype), EVERY[dtype]
    slack = info.slack + _of_terms(reading, dtype)
    by_chance = reading.get("dominated") and not info.slack
    yard_abs = max(reading["yard_abs"], reading.get("eps", 0.0) * reading["largest"])
    bound = more * info.factor * yard_abs + 2 * (reading["rounding"] + slack * reading["largest"])
    # Of few elements, by chance none of the yardstick's is far off: roundings on the way are allowed in full.
    bound = max(bound, reading.get("roundings", 0) * info.unit * reading["largest"])
    if not reading["max_abs"] <= bound and not by_chance:
        return f"largest error {reading['max_abs']:.3g}, allowed {bound:.3g} (from eager PyTorch's own error)"
    if "pooled" in reading:
        return ""  # relative to one small number, any error may be large
    allowed = _frobenius_allowed(reading, dtype)
    if not reading["frobenius"] <= allowed:
        return f"relative Frobenius error {reading['frobenius']:.3g}, allowed {allowed:.3g}"
    worst = more * ROW_FACTOR * (reading["yard_row"] + slack)
    if not reading["row"] <= worst and not by_chance:
        return f"relative error of a row {reading['row']:.3g}, allowed {worst:.3g}"
    most = ROW_FACTOR * reading.get("yard_column", 0.0)
    if (
        not info.slack and not reading.get("column", 0.0) <= most
    ):  # float32's largest error shows what is wrong in a column
        return f"relative error of a column {reading['column']:.3g}, allowed {most:.3g}"
    return ""


def _frobenius_allowed(reading: dict[str, Any], dtype: str) -> float:
    """On N(0, 1) inputs there is a cap, too: eager PyTorch's error there is no reason for a large one. Numbers too small for the
    dtype are: float16 rounds the softmax of 200,000 columns by 0.2%."""
    info = EVERY[dtype]
    slack = info.slack + _of_terms(reading, dtype)
    rounded = ROUNDING * 2 * info.unit * reading.get("roundings", 0)
    rounded *= 1 + BY_CHANCE / math.sqrt(reading.get("elements", math.inf))
    allowed = max(_more(reading, dtype) * info.factor * reading["yard_frobenius"], rounded) + slack
    cap = max(info.frobenius_cap, info.factor * reading.get("rounded_frobenius", 0.0))
    return min(allowed, cap) if _is_normal(reading) else allowed


def _why_systematic(reading: dict[str, Any], dtype: str) -> str:
    """One factor over all: a scale that is a little off moves each element less than rounding does, but all alike."""
    if (slope := reading.get("slope")) is None:
        return ""
    info, error = EVERY[dtype], reading["slope_error"]
    beyond_chance = max(0.0, abs(reading["yard_slope"]) - SIGMAS * reading["yard_slope_error"])
    allowed = reading["slope_allowed"] + info.factor * beyond_chance + SIGMAS * error
    if abs(slope) > allowed:
        how = "large" if slope > 0 else "small"
        return f"the output is {_percent(slope)} too {how} on average, allowed {_percent(allowed)}"
    if (rms := reading.get("slope_rms")) is not None:
        allowed = info.factor * reading["yard_slope_rms"] + info.folded + info.slack
        if rms > allowed:
            return f"rows are {_percent(rms)} too large or too small (root mean square), allowed {_percent(allowed)}"
    return ""


def _percent(share: float) -> str:
    return f"{100 * abs(share):.2g}%"


def _why_alone(reading: dict[str, Any], dtype: str) -> str:
    """Parts that are too small to show in the whole. Not where a few terms decide them: their error is chance."""
    if reading.get("dominated"):
        return ""
    info = EVERY[dtype]
    for part, (error, yard) in reading.get("alone", {}).items():
        allowed = _more(reading, dtype) * info.factor * yard + info.slack + info.unit
        if not error <= allowed:
            return f"{part}: relative error {error:.3g}, allowed {allowed:.3g}"
    return ""


def _is_normal(reading: dict[str, Any]) -> bool:
    return reading.get("distribution", "normal") == "normal"


def _more(reading: dict[str, Any], dtype: str) -> int:
    """Extra factor on the yardstick's error."""
    if _is_normal(reading):
        return 1
    return max(EVERY[dtype].unusual, DOMINATED if reading.get("dominated") else 1)


def _of_terms(reading: dict[str, Any], dtype: str) -> float:
    """What the order of a sum may cost in float32; 16 bits are rounded far more coarsely."""
    info = EVERY[dtype]
    return TERMS * info.unit * math.sqrt(reading.get("terms", 0)) if info.slack else 0.0


def _overflows(reading: dict[str, Any]) -> bool:
    """Eager PyTorch itself returns NaN on these unusual inputs: from head dim 128, fp16 scores of x30 overflow."""
    return not _is_normal(reading) and math.isnan(reading["yard_frobenius"])


def why_not_judged(reading: dict[str, Any], dtype: str) -> str:
    """Why errors on these inputs are not judged; empty if they are. NaN and unwritten elements always are."""
    if _is_normal(reading) or "mismatches" in reading:
        return ""
    return _named(reading, _why_not_judged(reading, reading.get("dtype", dtype)))


def _why_not_judged(reading: dict[str, Any], dtype: str) -> str:
    if not reading["fits"]:
        return f"the right answer ({reading['largest']:.3g}) does not fit {dtype}"
    if _overflows(reading):
        return "eager PyTorch itself gives NaN here"
    if not _frobenius_allowed(reading, dtype) < ANYTHING:
        return f"eager PyTorch itself is wrong by {reading['yard_frobenius']:.3g} here"
    return ""


def precision(readings: list[dict[str, Any]], dtype: str) -> str:
    """What kind of products a float32 kernel makes, from its error on tails; empty if that was not measured."""
    tails = [r for r in readings if r.get("distribution") == "tails" and "mismatches" not in r]
    tails = [r for r in tails if not why_wrong(r, dtype)]
    if not tails:
        return ""
    one_rounding = ROUNDING * 2 * EVERY[dtype].unit
    times = max(reading["frobenius"] / max(reading["yard_frobenius"], one_rounding) for reading in tails)
    if times <= LIKE_FLOAT32:
        return "as float32"
    return f"as with three tf32 products: {times:.1f} times the float32 error on inputs with exact products"


def _said(reading: dict[str, Any], dtype: str) -> str:
    if why := why_wrong(reading, dtype):
        return f"wrong: {why}"
    return f"not judged: {why}" if (why := why_not_judged(reading, dtype)) else "right"


def _how_far_off(reading: dict[str, Any], dtype: str) -> tuple[float, float]:
    """The relative error as a multiple of the dtype's cap, and as measured."""
    error = reading.get("frobenius", math.inf)
    return error / EVERY[reading.get("dtype", dtype)].frobenius_cap, error


def without_values(readings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The readings of a kernel that does other work: only what needs no correct values."""
    kept = ("wrong_kind", "late", "unwritten", "output", "of")
    return [
        {name: reading[name] for name in kept if name in reading}
        | {"unchecked": True}
        | ({"outputs": without_values(reading["outputs"])} if "outputs" in reading else {})
        for reading in readings
    ]


def _why_implausible_together(readings: list[dict[str, Any]]) -> str:
    """The same of all seeds: one wrong element in each is no chance."""
    for output in {reading.get("output") for reading in readings}:
        same = [reading for reading in readings if reading.get("output") == output and _is_normal(reading)]
        if why := _why_implausible(same):
            return _named(same[0], why)
    return ""


def judge(readings: list[dict[str, Any]], dtype: str, flags: dict[str, Any] | None = None) -> dict[str, Any]:
    """The verdict on a kernel from its readings, one per seed, and its flags.

    Each of several outputs is judged alone, by its own dtype.

    flags: inputs_changed, shared (calls share one output): booleans. refused: what the check of a problem says against it.
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
    why = why or _why_implausible_together(readings)
    if not why and flags.get("inputs_changed"):
        why = "the kernel changed its inputs"
    if not why and flags.get("shared"):
        why = "calls share one output: a later call overwrote or returned an earlier one"
    if refused := flags.get("refused"):
        why = f"{REFUSED}: {refused}" + (f" ({why})" if why else "")
    usual = [r for r in readings if r.get("distribution", "normal") == "normal"]
    worst = max(usual or readings, key=partial(_how_far_off, dtype=dtype))
    unknown = any(reading.get("unchecked") for reading in readings)
    correct = False if why else None if unknown else True
    found = {"correct": correct, "why": why, "seeds": seeds} | flags | worst
    if correct and (kind := precision(readings, dtype)):
        found["precision"] = kind
    return found | ({"distributions": said} if len(said) > 1 else {})
