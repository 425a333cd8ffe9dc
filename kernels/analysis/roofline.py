"""Hardware limits: datasheet peaks, the speed of light of a workload, and impossible times.

Peaks are dense. Each agrees with SMs x FLOP/clk/SM x clock. Some public tables give the sparse figure of the H100;
they are not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.dtypes import DTYPES
from kernels.operations.base import Operation
from kernels.workload import Ceilings

LOW_SHARE = 0.05
"""Below this share of the limit a kernel is probably launch-bound, or does not use tensor cores."""
MATMUL_SHARE, COPY_SHARE = 0.95, 1.03
"""Shares of a measured ceiling: a time above is measured again in a new process."""
VENDOR = ("NVIDIA", "GeForce", "Tesla")


@dataclass(frozen=True)
class Peak:
    """One GPU model. fp16, tf32, fp32: dense TFLOP/s; gb_per_s: memory; the other fields give the bound that no kernel
    can beat."""

    model: str
    names: tuple[str, ...]
    """The driver's names, without the vendor. Other forms (NVL, Laptop, MIG, GH200, ...) have other peaks."""
    fp16: float
    tf32: float
    fp32: float
    gb_per_s: float
    sm_count: int
    flop_per_clock_per_sm: int
    """fp16 on the tensor cores, dense."""
    max_ghz: float

    def tflops(self, dtype: str) -> float:
        """Peak for a dtype. float32 means float32: tf32 is another dtype."""
        return getattr(self, DTYPES[dtype].peak)

    def bound_tflops(self, dtype: str) -> float:
        """SMs x FLOP/clk x maximum clock, for the fastest unit that could do this dtype (for float32: tf32)."""
        share = getattr(self, DTYPES[dtype].bound) / self.fp16
        return self.sm_count * self.flop_per_clock_per_sm * self.max_ghz * share / 1e3


PEAKS = (
    Peak("L4", ("L4",), 121, 60, 30.3, 300, 58, 1024, 2.04),
    Peak("A100 SXM 80GB", ("A100 SXM4 80GB", "A100 SXM 80GB"), 312, 156, 19.5, 2039, 108, 2048, 1.41),
    Peak("H100 PCIe", ("H100 PCIe",), 756, 378, 51, 2000, 114, 4096, 1.755),
    Peak("H100 SXM", ("H100 80GB HBM3",), 989.4, 495, 67, 3350, 132, 4096, 1.98),
    Peak("H200 SXM", ("H200",), 989.4, 495, 67, 4800, 132, 4096, 1.98),
    Peak("B200", ("B200",), 2250, 1125, 75, 8000, 148, 8192, 1.965),
    Peak("RTX 4090", ("RTX 4090",), 165.2, 82.6, 82.6, 1008, 128, 512, 2.52),
    Peak("RTX 5090", ("RTX 5090",), 209.5, 104.8, 104.8, 1792, 170, 512, 2.407),
)


def peak_of(device_name: str) -> Peak | None:
    """The peaks of a device by its name. None if unknown: then no share of a limit is shown."""
    words = device_name.replace("-", " ").split()
    name = " ".join(word for word in words if word not in VENDOR)
    return next((peak for peak in PEAKS if name in peak.names), None)


def speed_of_light_ms(
    problem: Operation, peak: Peak | None, ceilings: Ceilings | None = None, mode: str = ""
) -> float | None:
    """max(FLOPs / peak, bytes / bandwidth, an empty kernel), milliseconds: no exact kernel is faster on cold inputs.

    ceilings: measured on this device. They replace an unknown datasheet and give the time of an empty kernel.
    """
    tflops = peak.tflops(problem.dtype) if peak else ceilings and ceilings.matmul_tflops.get(problem.dtype)
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
        return f"{claimed:.4g} TFLOP/s is above {MATMUL_SHARE:.0%} of this device's matrix product ({reached:.4g})"
    read, written = problem.bytes_moved()
    moved, bandwidth = (read + max(0, written - cache_bytes)) / (time_ms * 1e6), ceilings.bandwidth_gb_per_s
    if touched_once and bandwidth and moved > COPY_SHARE * bandwidth:
        return f"{moved:.4g} GB/s is above {COPY_SHARE:.0%} of this device's measured bandwidth ({bandwidth:.4g})"
    return ""


def why_impossible(problem: Operation, time_ms: float, peak: Peak | None, touched_once: bool, cache_bytes: int) -> str:
    """Why a time is impossible, as a sentence; empty if it is possible.

    touched_once: every input set was read once after eviction, so the inputs came from memory.
    """
    if peak is None:
        return ""
    bound = peak.bound_tflops(problem.dtype)
    claimed = problem.flops() / (time_ms * 1e9)
    if claimed > bound:
        return (
            f"{time_ms:.4g} ms would be {claimed:.4g} TFLOP/s; {peak.model} cannot exceed {bound:.4g} "
            f"({peak.sm_count} SMs x {peak.flop_per_clock_per_sm} FLOP/clk x {peak.max_ghz:g} GHz)"
        )
    if touched_once:
        read, written = problem.bytes_moved()
        least = read + max(0, written - cache_bytes)
        claimed_gb = least / (time_ms * 1e6)
        if claimed_gb > peak.gb_per_s:
            return (
                f"{time_ms:.4g} ms would move {claimed_gb:.4g} GB/s; the memory of {peak.model} does {peak.gb_per_s:g}"
            )
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
        "hint": "low: launch-bound, or not using tensor cores" if low else "",
    }
