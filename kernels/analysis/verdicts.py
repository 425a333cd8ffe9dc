"""One word for a result: from its status, its interval and its workload's margin."""

from __future__ import annotations

from kernels.analysis.statistics import word
from kernels.contract.arm_result import ArmResult, Status, Verdict


def verdict(arm: ArmResult, baseline: str, margin: float) -> Verdict | Status:
    """The status if not ok; otherwise BASELINE, FASTER, SLOWER, SAME, UNDECIDED, or why there is no verdict."""
    if arm.status != Status.OK:
        return arm.status
    if arm.p50_ms is None:
        if arm.is_checked:
            return Verdict.CORRECT
        return Verdict.UNKNOWN if arm.correctness else Verdict.NONE
    if arm.kernel == baseline:
        return Verdict.BASELINE
    if not arm.is_checked and arm.speedup is not None:
        return Verdict.UNKNOWN
    return word(arm.speedup_low, arm.speedup_high, margin, arm.rounds or 0, paired=arm.paired)
