"""Makes a Measured event from readings: statistics, speedups, rates. No device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from kernels.analysis import roofline, statistics
from kernels.contract.arm_result import ArmResult, ColdCalls, Ratio, Spread, Status
from kernels.operations.base import Operation
from kernels.parent.arm import Arm
from kernels.parent.drive import AA
from kernels.parent.rounds import Reading
from kernels.workload import Ceilings

NS_PER_MS = 1e6
IN_MS = ("mean", "std", "min", "max", *(f"p{p}" for p in statistics.PERCENTILES))
COLD_IN_MS = ("p50", "p90", "p95", "p99")


def json_safe(value: Any) -> Any:
    """The value without what JSON and databases reject: NaN and Inf become None; NUL characters are removed.

    A kernel that returns NaN, or raises a message with NUL, must not cost other kernels their results.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.replace("\x00", "")
    if isinstance(value, dict):
        return {json_safe(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    return value


@dataclass(frozen=True)
class Limits:
    """Limits that a time is compared with."""

    problem: Operation
    device_name: str
    l2_bytes: int = 0
    ceilings: Ceilings | None = None
    """None on a CPU: its ceilings are no limits."""


def reading_fields(reading: Reading | None, baseline: str) -> dict[str, Any]:
    """The fields of a Measured that all arms share: protocol, A/A and margin."""
    if reading is None:
        return {"margin": statistics.MARGIN}
    aa = samples_ns = None
    if baseline + AA in reading.blocks:
        samples_ns = _samples_ns(reading, baseline + AA)
        aa = statistics.paired_speedup(reading.medians(baseline), reading.medians(baseline + AA))
    return {
        "protocol": {
            "paired": reading.paired,
            "sets": reading.sets,
            "covered": reading.covered,
            "flushed": reading.flushed,
            "rest": reading.rest,
            "rounds": len(reading.orders),
            "orders": reading.orders,
            "repeated": reading.repeated,
            "rounds_s": round(reading.rounds_s, 3),
        },
        "aa": aa,
        "aa_samples_ns": samples_ns,
        "margin": statistics.margin_from(aa),
        "notes": reading.notes,
    }


def arm_result(arm: Arm, reading: Reading | None, baseline: str, limits: Limits, seed: int) -> ArmResult:
    """Result of one arm: its status; if timed, its statistics, speedup over the baseline and rates."""
    facts = {name: value for name, value in arm.facts.items() if name in ArmResult.model_fields}
    if arm.correctness:
        facts["correctness"] = arm.correctness
    fields = json_safe(facts | {"kernel": arm.name, "status": arm.status, "why": arm.why, "log": arm.log})
    if arm.is_ok and reading is not None and reading.blocks.get(arm.name):
        fields |= _timed(arm.name, reading, baseline, limits, seed)
    return ArmResult.model_validate(fields)


def without_ratio(result: ArmResult) -> ArmResult:
    """The result without its speedup: its baseline is not ok."""
    nothing = dict.fromkeys(("speedup", "speedup_low", "speedup_high", "effective_sample_size"))
    return result.model_copy(update=nothing)


def _timed(name: str, reading: Reading, baseline: str, limits: Limits, seed: int) -> dict[str, Any]:
    fields = times(name, reading)
    problem, p50_ms = limits.problem, fields["p50_ms"]
    peak = roofline.peak_of(limits.device_name)
    fields |= roofline.rates(problem, p50_ms, roofline.speed_of_light_ms(problem, peak, limits.ceilings, reading.mode))
    if why := roofline.why_impossible(problem, p50_ms, peak, reading.touched_once, limits.l2_bytes):
        return fields | {"status": Status.IMPOSSIBLE, "why": why}
    if name != baseline:
        fields |= _speedup(reading.medians(baseline), reading.medians(name), reading.paired, seed)
    return fields


def _samples_ns(reading: Reading, arm: str) -> list[list[float]]:
    return [[round(tick, 1) for tick in ticks] for ticks in reading.blocks[arm]]


def times(name: str, reading: Reading) -> dict[str, Any]:
    """The time fields of an ArmResult."""
    blocks = reading.blocks[name]
    in_ms = [tick / NS_PER_MS for ticks in blocks for tick in ticks]
    stats = statistics.describe(in_ms)
    low, high = statistics.p50_interval(stats["p50"], [m / NS_PER_MS for m in reading.medians(name)])
    fields: dict[str, Any] = {f"{figure}_ms": stats[figure] for figure in IN_MS}
    fields |= {figure: stats[figure] for figure in ("n", "iqr_over_median", "outliers")}
    fields |= {"p50_low_ms": low, "p50_high_ms": high, "rounds": len(blocks)}
    fields |= {"left_after_round": reading.left.get(name), "samples_ns": _samples_ns(reading, name)}
    if name in reading.cold:
        cold = statistics.describe([tick / NS_PER_MS for tick in reading.cold[name]])
        fields["cold"] = ColdCalls(n=int(cold["n"]), **{f"{figure}_ms": cold[figure] for figure in COLD_IN_MS})
    if clocks := reading.sm_mhz.get(name):
        fields["sm_mhz"] = Spread(median=median(clocks), min=min(clocks), max=max(clocks), n=len(clocks))
    return fields


def _speedup(base: Sequence[float], arm: Sequence[float], paired: bool, seed: int) -> dict[str, Any]:
    """The speedup fields of an ArmResult, from one number per round."""
    fields: dict[str, Any] = {"paired": paired}
    if paired:
        base = base[: len(arm)]
        ratio = Ratio(*statistics.paired_speedup(base, arm))
        fields["effective_sample_size"] = statistics.effective_sample_size(base, arm)
    else:
        ratio = Ratio(*statistics.unpaired_speedup(base, arm, seed))
    return fields | {"speedup": ratio.ratio, "speedup_low": ratio.low, "speedup_high": ratio.high}
