"""Judges outputs in measure(): by the reference, or without one by agreement with the baseline."""

from __future__ import annotations

from typing import Any

import torch

from kernels.analysis.correctness import ROW_FACTOR, judge, why_nonfinite
from kernels.dtypes import DTYPES
from kernels.inprocess.adhoc import Adhoc, of_reference

BASELINE = "baseline"
UNKNOWN = "correctness unknown"
"""Word of a result without a reference."""
DISAGREES = "disagrees with its baseline"
"""Word of a result that disagrees with the baseline, if there is no reference."""
ASK = (
    f"{UNKNOWN}: nothing was checked against a reference. Give one: reference=f, a plain implementation, or "
    'reference="baseline" if the baseline is right'
)
BOTH = 2
"""Two correct outputs, each as far from the truth as its dtype allows, differ by at most twice that."""
OTHER_CAP = {torch.float64: 1e-11}
"""Largest relative error of the dtypes without a yardstick."""
MISMATCHES = 1e-3
"""Share of the elements of an integer or bool output that may differ: ties, and rounding to levels."""
NO_ERROR = dict.fromkeys(
    ("nonfinite", "max_abs", "yard_abs", "rounding", "largest", "frobenius", "yard_frobenius", "row", "yard_row"), 0.0
)
"""Reading of an output without a comparison. Faults that need none (never written, ...) are added."""


class Judged:
    """Judges outputs by the reference; without one, by faults that need none and by agreement with the baseline."""

    def __init__(self, problem: Adhoc, has_baseline: bool) -> None:
        self.problem, self.has_baseline = problem, has_baseline

    def __call__(self, arm: str, readings: list[dict[str, Any]], flags: dict[str, Any]) -> dict[str, Any]:
        """Returns {"correct": None without a reference, "why", "word": why there is no speedup, if so, ...}."""
        if self.problem.exact is not None:
            found = judge(readings, self.problem.dtype, flags)
            return found | {"why": of_reference(found["why"])}
        each = [one for reading in readings for one in reading.get("outputs", [reading])]
        alone = [NO_ERROR | {what: reading.get(what) for what in ("late", "unwritten")} for reading in each]
        found = judge(alone, "float32", flags)
        return found if not found["correct"] else self._agreement(arm, each)

    def _agreement(self, arm: str, readings: list[dict[str, Any]]) -> dict[str, Any]:
        """Without a reference: an output that disagrees with the baseline gets no speedup."""
        found: dict[str, Any] = {"correct": None, "why": "not checked against a reference"}
        if arm == BASELINE or not self.has_baseline:
            return found
        for reading in readings:
            if how := self._why_disagrees(reading):
                return found | {"why": f"{found['why']}; disagrees with the baseline: {how}", "word": DISAGREES}
        return found | {"why": f"{found['why']}; agrees with the baseline"}

    def _why_disagrees(self, reading: dict[str, Any]) -> str:
        """How an output differs from the baseline's, relative to its norm; empty if it does not."""
        if reading.get("wrong_kind"):
            return reading["wrong_kind"]
        if reading["constant"]:
            return "every element of the output is the same"
        if reading.get("nonfinite_places") and (why := why_nonfinite(reading)):
            return why
        if "mismatches" in reading:
            share = reading["frobenius"]
            return f"{share:.2%} of the elements differ" if share > MISMATCHES else ""
        cap = self._cap(reading)
        if reading["nonfinite"] or not reading["frobenius"] <= cap:
            return f"relative difference {reading['frobenius']:.3g}, allowed {cap:.3g}"
        if not reading["row"] <= ROW_FACTOR * cap:
            return f"relative difference of a row {reading['row']:.3g}, allowed {ROW_FACTOR * cap:.3g}"
        return ""

    def _cap(self, reading: dict[str, Any]) -> float:
        dtype = self.problem.outputs[reading.get("output", 1) - 1][1]
        row = DTYPES.get(str(dtype).removeprefix("torch."))
        return BOTH * (row.frobenius_cap if row else OTHER_CAP[dtype])
