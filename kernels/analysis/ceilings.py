"""Measured ceilings of a device, as rates, from the raw samples of kernels/child/calibrate.py."""

from __future__ import annotations

from statistics import median
from typing import Any

from kernels.workload import Ceilings


def ceilings(raw: dict[str, Any]) -> Ceilings:
    """Medians as rates. raw: the result of `probe` in kernels/child/calibrate.py."""
    return Ceilings(
        copy_gb_per_s=raw["copy"]["bytes"] / median(raw["copy"]["ticks_ns"]),
        read_gb_per_s=raw["read"]["bytes"] / median(raw["read"]["ticks_ns"]),
        matmul_tflops={name: m["flops"] / median(m["ticks_ns"]) / 1e3 for name, m in raw["matmul"].items()},
        empty_us={mode: median(ticks) / 1e3 for mode, ticks in raw["empty"].items()},
        n=len(raw["copy"]["ticks_ns"]),
    )
