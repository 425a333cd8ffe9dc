"""Whether workloads fit the memory of a device."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.workload import Workload


def why_too_large(workloads: Sequence[Workload], memory_bytes: int | None) -> str:
    """Why some workloads cannot fit a device, with both figures, as a sentence; empty if all might fit.

    Their inputs and outputs alone are counted. A kernel's own memory, several input sets and the checks need more.
    """
    if memory_bytes is None:
        return ""
    large = [workload for workload in workloads if workload.problem.tensor_bytes > memory_bytes]
    if not large:
        return ""
    worst = max(large, key=lambda workload: workload.problem.tensor_bytes)
    need = f"{worst.label} needs {size(worst.problem.tensor_bytes)} for inputs and outputs"
    more = f" {len(large)} of {len(workloads)} workloads do not fit." if len(workloads) > 1 else ""
    return f"{need}, this device has {size(memory_bytes)}.{more}"


def size(count: float) -> str:
    """Bytes with their unit: 384 GiB, 1.5 GiB."""
    for unit, unit_bytes in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= unit_bytes:
            units = count / unit_bytes
            return f"{units:,.0f} {unit}" if units >= 100 else f"{units:.3g} {unit}"
    return f"{count:.0f} B"
