"""The speed of light of a workload, and times that are impossible, by the peaks of a GPU model (peaks.py)."""

from __future__ import annotations

import math
from typing import Any

from kernels.analysis.peaks import Peak
from kernels.operations.base import Operation
from kernels.workload import Ceilings

LOW_SHARE = 0.05
"""Below this share of the limit a kernel is far from it."""
MATMUL_SHARE, COPY_SHARE = 0.95, 1.03
"""Shares of a measured ceiling: a time above is measured again in a new process."""


def speed_of_light_ms(
    problem: Operation, peak: Peak | None, ceilings: Ceilings | None = None, mode: str = ""
) -> float | None:
    """max(FLOPs / light of the dtype, bytes / bandwidth, an empty kernel), milliseconds: no right kernel is faster on
    cold inputs.

    ceilings: measured on this device. They replace an unknown model and give the time of an empty kernel.
    """
    tflops = peak.light(problem.dtype).tflops if peak else ceilings and ceilings.matmul_tflops.get(problem.dtype)
    gb_per_s = peak.gb_per_s if peak else ceilings and ceilings.bandwidth_gb_per_s
    if not tflops or not gb_per_s:
        return None
    compute = problem.flops() / (tflops * 1e12)
    memory = sum(problem.bytes_moved()) / (gb_per_s * 1e9)
    empty = ceilings.empty_us.get(mode, 0.0) if ceilings else 0.0
    return max(compute * 1e3, memory * 1e3, empty / 1e3)


def why_above(
    problem: Operation, time_ms: float, ceilings: Ceilings | None, touched_once: bool, cache_bytes: int
) -> str:
    """Why a time is above a measured ceiling, as a sentence; empty if it is not.

    It may still be true: such a time is measured again in a new process.
    """
    if not ceilings:
        return ""
    reached = ceilings.matmul_tflops.get(problem.dtype)
    claimed = problem.flops() / (time_ms * 1e9)
    if reached and claimed > MATMUL_SHARE * reached:
        return (
            f"{claimed:.4g} TFLOP/s is above {MATMUL_SHARE:.0%} of this device's matrix product ({reached:.4g} TFLOP/s)"
        )
    read, written = problem.bytes_moved()
    moved, bandwidth = (read + max(0, written - cache_bytes)) / (time_ms * 1e6), ceilings.bandwidth_gb_per_s
    if touched_once and bandwidth and moved > COPY_SHARE * bandwidth:
        return f"{moved:.4g} GB/s is above {COPY_SHARE:.0%} of this device's measured bandwidth ({bandwidth:.4g} GB/s)"
    return ""


def why_impossible(problem: Operation, time_ms: float, peak: Peak | None, touched_once: bool, cache_bytes: int) -> str:
    """Why a time is impossible, as a sentence; empty if it is possible.

    touched_once: every input set was read once after eviction, so the inputs came from memory.
    """
    if peak is None:
        return ""
    light = peak.light(problem.dtype)
    claimed = problem.flops() / (time_ms * 1e9)
    if claimed > light.tflops:
        return (
            f"{time_ms:.4g} ms would be {claimed:.4g} TFLOP/s; {peak.model} cannot exceed {light.tflops:.4g} "
            f"TFLOP/s ({light.arithmetic})"
        )
    if touched_once:
        read, written = problem.bytes_moved()
        least = read + max(0, written - cache_bytes)
        claimed_gb = least / (time_ms * 1e6)
        if claimed_gb > peak.gb_per_s:
            most = f"the memory of {peak.model} reaches at most {peak.gb_per_s:g} GB/s"
            return f"{time_ms:.4g} ms would move {claimed_gb:.4g} GB/s; {most}"
    return ""


def rates(problem: Operation, time_ms: float, limit_ms: float | None) -> dict[str, Any]:
    """tflops, gb_per_s, limit_ms (speed of light), limit_share (share of it reached, 0 to 1), hint."""
    share = limit_ms / time_ms if limit_ms else None
    low = share is not None and share < LOW_SHARE
    return {
        "tflops": problem.flops() / (time_ms * 1e9),
        "gb_per_s": sum(problem.bytes_moved()) / (time_ms * 1e6),
        "limit_ms": limit_ms,
        "limit_share": share,
        "hint": "far from the limit: a profile shows why" if low else "",
    }


def renewed_ms(limit_ms: float, problem: Operation, peak: Peak) -> float:
    """The speed of light of an older result as it is computed today (ms). Up to harness 5 its compute bound was the data
    sheet's rate, which a GPU exceeds at its maximum clock."""
    by_datasheet = problem.flops() / (peak.tflops(problem.dtype) * 1e9)
    today = speed_of_light_ms(problem, peak)
    return today if today and math.isclose(limit_ms, by_datasheet, rel_tol=1e-3) else limit_ms
