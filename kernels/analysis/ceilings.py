"""Measured ceilings of a device, as rates, from the raw samples of kernels/child/calibrate.py."""

from __future__ import annotations

from statistics import median

from kernels.contract.replies import CeilingSamples
from kernels.workload import Ceilings


def ceilings(raw: CeilingSamples) -> Ceilings:
    """Medians as rates."""
    return Ceilings(
        copy_gb_per_s=raw.copied.bytes / median(raw.copied.ticks_ns),
        read_gb_per_s=raw.read.bytes / median(raw.read.ticks_ns),
        matmul_tflops={name: m.flops / median(m.ticks_ns) / 1e3 for name, m in raw.matmul.items()},
        empty_us={mode: median(ticks) / 1e3 for mode, ticks in raw.empty.items()},
        n=len(raw.copied.ticks_ns),
    )
