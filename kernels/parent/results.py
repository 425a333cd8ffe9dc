"""Makes a Measured event from readings: statistics, speedups, rates. No device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from kernels.analysis import roofline, statistics
from kernels.analysis.peaks import Peak
from kernels.analysis.processes import ProcessSpread, pooled, spread_of
from kernels.contract.arm_result import ArmResult, ColdCalls, Ratio, Spread, Status
from kernels.contract.events import without_false_ratios
from kernels.operations.base import Operation
from kernels.parent.arm import Arm
from kernels.parent.drive import AA
from kernels.parent.reading import Reading
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
    """What a time is compared with."""

    problem: Operation
    device_name: str
    peak: Peak | None = None
    """Of the device's model, at its own maximum clock."""
    l2_bytes: int = 0
    ceilings: Ceilings | None = None
    """None on a CPU: its ceilings are no limits."""


def reading_fields(reading: Reading | None, baseline: str, device: str) -> dict[str, Any]:
    """The fields of a Measured that all arms share: protocol, A/A and margin. device: its name."""
    if reading is None:
        return {"margin": statistics.MARGIN}
    aa, samples_ns, margin = None, None, statistics.MARGIN
    if baseline + AA in reading.blocks:
        samples_ns = _samples_ns(reading, baseline + AA)
        each = _ratios(reading, baseline, baseline + AA)
        aa = each[0] if len(each) == 1 else pooled(each, ProcessSpread(0.0, len(each), "")).ratio
        margin = max(map(statistics.margin_from, each))
        if is_too_few(reading, baseline + AA):
            aa = None
    spread = spread_of(device, reading.mode)
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
            "processes": len(reading.by_process),
            "process_sd": spread.sd if reading.paired else None,
            "process_sd_source": spread.source if reading.paired else "",
        },
        "aa": aa,
        "aa_samples_ns": samples_ns,
        "margin": margin,
        "notes": reading.notes,
    }


def arm_results(
    arms: Sequence[Arm], reading: Reading | None, baseline: str, limits: Limits, seed: int
) -> list[ArmResult]:
    """Result of each arm: its status; if timed, its statistics, speedup over the baseline and rates.

    Without speedups if the baseline is not ok; the reading's notes say so.
    """
    results = [_arm_result(arm, reading, baseline, limits, seed) for arm in arms]
    base = next((one for one in results if one.kernel == baseline), None)
    unfit = base and ("not the same work" if base.other_work else base.status if base.status != Status.OK else "")
    if reading and unfit and any(one.speedup for one in results):
        reading.notes.append(f"the baseline {baseline} is {unfit}: nothing is compared with it")
    return without_false_ratios(results, baseline)


def _arm_result(arm: Arm, reading: Reading | None, baseline: str, limits: Limits, seed: int) -> ArmResult:
    facts = {name: value for name, value in arm.facts.items() if name in ArmResult.model_fields}
    if arm.correctness:
        facts["correctness"] = arm.correctness
    fields = json_safe(facts | {"kernel": arm.name, "status": arm.status, "why": arm.why})
    fields["log"] = json_safe(arm.log or arm.facts.get("log", ""))  # why it failed; else what its compiler said
    if arm.is_ok and reading is not None and reading.blocks.get(arm.name):
        fields |= _timed(arm, reading, baseline, limits, seed)
    return ArmResult.model_validate(fields)


def _timed(arm: Arm, reading: Reading, baseline: str, limits: Limits, seed: int) -> dict[str, Any]:
    name, fields = arm.name, times(arm.name, reading)
    problem, p50_ms = limits.problem, fields["p50_ms"]
    peak = limits.peak
    if not arm.other_work and problem.work_is_known:
        light_ms = roofline.speed_of_light_ms(problem, peak, limits.ceilings, reading.mode)
        fields |= roofline.rates(problem, p50_ms, light_ms)
        if why := roofline.why_impossible(problem, p50_ms, peak, reading.touched_once, limits.l2_bytes):
            return fields | {"status": Status.IMPOSSIBLE, "why": why}
    if name != baseline and not is_too_few(reading, name):
        paired = reading.paired
        fields |= (
            speedup(reading, baseline, name, limits.device_name) if paired else _unpaired(reading, baseline, name, seed)
        )
    return fields


def is_too_few(reading: Reading, name: str) -> bool:
    """Whether an arm has too few rounds for a ratio: the range of so few says nothing of its error."""
    return reading.paired and len(reading.blocks[name]) < statistics.FEWEST_ROUNDS


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


def speedup(reading: Reading, baseline: str, name: str, device: str) -> dict[str, Any]:
    """The speedup fields of an ArmResult, from pairs within rounds, and with the spread between processes. device: its
    name."""
    ratios = _ratios(reading, baseline, name)
    whole = pooled(ratios, spread_of(device, reading.mode))
    sizes = [statistics.effective_sample_size(*part.pairs(baseline, name)) for part in reading.by_process]
    return {
        "speedup": whole.ratio.ratio,
        "speedup_low": whole.ratio.low,
        "speedup_high": whole.ratio.high,
        "rounds_half_width": whole.rounds_half_width,
        "process_half_width": whole.process_half_width,
        "by_process": ratios if len(ratios) > 1 else None,
        "effective_sample_size": sum(sizes),
    }


def _ratios(reading: Reading, baseline: str, name: str) -> list[Ratio]:
    """The ratio of each process, with its interval from rounds."""
    return [Ratio(*statistics.paired_speedup(*part.pairs(baseline, name))) for part in reading.by_process]


def _unpaired(reading: Reading, baseline: str, name: str, seed: int) -> dict[str, Any]:
    ratio = Ratio(*statistics.unpaired_speedup(reading.medians(baseline), reading.medians(name), seed))
    return {"paired": False, "speedup": ratio.ratio, "speedup_low": ratio.low, "speedup_high": ratio.high}
