"""What settings must pass: they are correct, p50 and p90 are not worse, and they are better on enough workloads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernels.analysis.criteria import p90_reach
from kernels.analysis.statistics import MARGIN, for_many
from kernels.analysis.verdicts import is_noisy
from kernels.contract.arm_result import ArmResult, Status
from kernels.contract.events import Measured
from kernels.contract.search import OnWorkload
from kernels.tune_plan import TunePlan


def shown(measured: Measured, name: str, own: str) -> OnWorkload:
    """What a measurement shows of one arm, beside the kernel's own choice."""
    arm = next(one for one in measured.results if one.kernel == name)
    base = next((one for one in measured.results if one.kernel == own), None)
    status, why = arm.status, arm.why
    if status == Status.OK and (base is None or base.status != Status.OK):
        status, why = Status.FAILED, f"the kernel's own choice is {base.status if base else 'not measured'} there"
    elif status == Status.OK and arm.ratio is None:
        status, why = Status.FAILED, "it was not timed in the same rounds as the kernel's own choice"
    return OnWorkload(
        key=measured.key,
        status=status,
        why=why,
        correct=arm.correctness.correct if arm.correctness else None,
        ratio=arm.ratio if status == Status.OK else None,
        p50_ms=arm.p50_ms,
        p90_ms=arm.single_calls.p90_ms,
        own_p50_ms=base.p50_ms if base else None,
        own_p90_ms=base.single_calls.p90_ms if base else None,
        p90_worse=base is not None and _p90_is_worse(arm, base, measured.margin),
        margin=measured.margin,
        rounds=arm.rounds,
        processes=measured.protocol.processes,
    )


def _p90_is_worse(arm: ArmResult, base: ArmResult, margin: float) -> bool:
    mine, its = p90_reach(arm.single_calls), p90_reach(base.single_calls)
    return mine is not None and its is not None and mine[0] > its[1] * (1 + margin)


def why_pruned(results: Sequence[OnWorkload], label: Mapping[str, str]) -> str:
    """Why a trial is given up, as a sentence; empty if it was timed and correct everywhere."""
    for one in results:
        if one.status != Status.OK:
            return f"{one.status} on {label[one.key]}: {one.why}" if one.why else f"{one.status} on {label[one.key]}"
        if one.correct is not True:
            return f"not known to be correct on {label[one.key]}"
    return ""


def score(results: Sequence[OnWorkload]) -> float | None:
    """Geometric mean of the speedups; None if one is missing."""
    ratios = [one.ratio.ratio for one in results if one.ratio]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios and len(ratios) == len(results) else None


def why_fails(results: Sequence[OnWorkload], plan: TunePlan, label: Mapping[str, str], confirmed: bool) -> str:
    """Which gate settings do not pass, as a sentence; empty if they pass all.

    Screening has wide intervals: there a p50 is worse if its whole interval says so, and better by the estimate. To be
    confirmed, the interval must exclude a p50 that is worse by more than the margin, and reach `least` with its low end;
    where A/A was off, by as much more as that widened the margin. Where it was too noisy, nothing is decided.
    """
    if why := why_pruned(results, label):
        return why
    for one in results:
        assert one.ratio is not None
        if confirmed and is_noisy(one.margin):
            return f"A/A was too noisy on {label[one.key]} (margin {one.margin:.0%}): results there are undecided"
        worse = one.ratio.low < 1 / (1 + one.margin) if confirmed else one.ratio.high < 1
        if worse:
            return f"p50 {'may be' if confirmed else 'is'} worse on {label[one.key]}"
        if one.p90_worse:
            return f"p90 is worse on {label[one.key]}"
    needed = min(plan.shapes, len(results))
    better = sum(_is_better(one, plan.least, confirmed) for one in results)
    if better < needed:
        return f"{plan.least:g}x on {better} of the {needed} workloads that it needs"
    return ""


def _is_better(one: OnWorkload, least: float, confirmed: bool) -> bool:
    if one.ratio is None or not confirmed:
        return one.ratio is not None and one.ratio.ratio >= least
    return one.ratio.low >= least * (1 + max(0.0, one.margin - MARGIN))


def for_all(results: Sequence[OnWorkload], finalists: int) -> list[OnWorkload]:
    """The results with intervals that hold for all finalists on all workloads at once: the best of them is chosen."""
    comparisons = finalists * len(results)
    return [
        one.model_copy(update={"ratio": for_many(one.ratio, comparisons, one.rounds)})
        if one.ratio and one.rounds
        else one
        for one in results
    ]
