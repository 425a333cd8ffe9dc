"""From raw readings to results: the plain data of a `measured` event. Parent side, no device.

An event carries every arm that shared a child on one workload, so that no ratio can join two children.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from kernels.analysis import roofline, statistics
from kernels.parent.drive import AA
from kernels.parent.rounds import Reading

if TYPE_CHECKING:
    from kernels.parent.arm import Arm
    from kernels.parent.workload_run import Measuring

NS_PER_MS = 1e6
COLD_FIGURES = ("n", "p50", "p90", "p95", "p99")


def storable(value: Any) -> Any:
    """The same value without what JSON and databases refuse: NaN and Inf become None, NUL characters go.

    A kernel that returns NaN, or fails with a NUL in its message, must not cost its neighbours their results.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.replace("\x00", "")
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value


def reading_result(reading: Reading | None, baseline: str, seed: int) -> dict[str, Any]:
    """What belongs to all arms of an event: how it was measured, A/A, the margin that it allows."""
    if reading is None:
        return {"protocol": {}, "aa": None, "aa_ticks_ns": None, "margin": statistics.MARGIN, "notes": []}
    aa = ticks_ns = None
    if baseline + AA in reading.blocks:
        ticks_ns = _ticks(reading, baseline + AA)
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
        "aa_ticks_ns": ticks_ns,
        "margin": statistics.margin_from(aa),
        "notes": reading.notes,
    }


def arm_result(arm: Arm, reading: Reading | None, baseline: str, of: Measuring) -> dict[str, Any]:
    """One arm of an event: verdict, statistics in ms, speedup over the baseline, rates, and the raw ticks in ns."""
    facts, name = arm.facts, arm.name
    result: dict[str, Any] = {
        "kernel": name,
        "status": arm.status,
        "why": arm.why,
        "log": arm.log,
        "sha256": facts.get("sha256", ""),
        "source": facts.get("source", ""),
        "backend": facts.get("backend", ""),
        "compile_s": facts.get("compile_s"),
        "peak_memory_bytes": facts.get("peak_memory_bytes"),
        "correctness": facts.get("correctness"),
    }
    if arm.status != "ok" or reading is None or not reading.blocks.get(name):
        return result
    result |= _times(name, reading)
    environment, problem = of.run.environment, of.workload.problem
    peak, p50 = roofline.peak_of(environment["device"]), result["stats"]["p50"]
    l2_bytes = environment.get("l2_bytes", 0)
    impossible = roofline.why_impossible(problem, p50, peak, reading.touched_once, l2_bytes)
    limit = roofline.speed_of_light_ms(problem, peak, of.run.ceilings if of.cuda else None, reading.mode)
    result |= roofline.rates(problem, p50, limit)
    if impossible:
        return result | {"status": "impossible", "why": impossible}
    if name != baseline:
        result["speedup"] = _speedup(name, reading, baseline, of.plan.seed)
    return result


def _ticks(reading: Reading, arm: str) -> list[list[float]]:
    return [[round(tick, 1) for tick in ticks] for ticks in reading.blocks[arm]]


def _times(name: str, reading: Reading) -> dict[str, Any]:
    blocks = reading.blocks[name]
    in_ms = [tick / NS_PER_MS for ticks in blocks for tick in ticks]
    stats = statistics.describe(in_ms)
    low, high = statistics.p50_interval(stats["p50"], [m / NS_PER_MS for m in reading.medians(name)])
    found: dict[str, Any] = {
        "stats": stats | {"p50_low": low, "p50_high": high},
        "rounds": len(blocks),
        "left_after": reading.left.get(name),
        "ticks_ns": _ticks(reading, name),
    }
    if name in reading.cold:
        cold = statistics.describe([tick / NS_PER_MS for tick in reading.cold[name]])
        found["cold"] = {figure: cold[figure] for figure in COLD_FIGURES}
    if clocks := reading.sm_mhz.get(name):
        found["sm_mhz"] = {"median": median(clocks), "min": min(clocks), "max": max(clocks), "n": len(clocks)}
    return found


def _speedup(name: str, reading: Reading, baseline: str, seed: int) -> dict[str, Any]:
    """{"ratio", "low", "high", "rounds", "paired"} of baseline time over this arm's.

    In pairs also "effective_sample_size": as many independent rounds would tell as much.
    """
    base, arm = reading.medians(baseline), reading.medians(name)
    found: dict[str, Any] = {"rounds": len(arm), "paired": reading.paired}
    if reading.paired:
        base = base[: len(arm)]
        ratio, low, high = statistics.paired_speedup(base, arm)
        found["effective_sample_size"] = statistics.effective_sample_size(base, arm)
    else:
        ratio, low, high = statistics.unpaired_speedup(base, arm, seed)
    return {"ratio": ratio, "low": low, "high": high} | found
