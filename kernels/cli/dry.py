"""run --dry-run: what a run would measure, and for how long, without measuring it."""

from __future__ import annotations

from typing import Any

from kernels import catalog
from kernels.analysis.memory import size, why_too_large
from kernels.analysis.peaks import peak_of
from kernels.cli.table import aligned
from kernels.dtypes import DTYPES
from kernels.host.device import Device
from kernels.parent.duration import OFF_BY, START_S, guess, processes_of, span
from kernels.workload import Config, Workload

REACHED = 0.75
"""Share of a datasheet's rates that a card reaches: a guess, for an estimate of the time only."""


def plan(config: Config, device: Device) -> list[str]:
    """Lines: every workload with its kernels, what cannot run on the device and why, the results, the time."""
    able = {operation: _able(config, operation, device) for operation in config.operations}
    lines: list[str] = []
    for operation in config.operations:
        lines += _of(operation, [w for w in config.workloads if w.operation == operation], able[operation])
    lines += [f"{name} cannot run here: {why}" for name, why in _unable(config, device)]
    if why := why_too_large(config.workloads, device.memory_bytes):
        lines.append(why)
    results = sum(len(able[workload.operation]) for workload in config.workloads)
    counted = f"{_counted(len(config.workloads), 'workload')}, {_counted(results, 'result')}"
    return [*lines, f"{counted}, {_time(config, able, device)}. Nothing was measured."]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _of(operation: str, workloads: list[Workload], kernels: list[str]) -> list[str]:
    table = [[workload.label, size(workload.problem.tensor_bytes)] for workload in workloads]
    return [f"{operation}: {', '.join(kernels)}", *(f"  {line}" for line in aligned(table)), ""]


def _able(config: Config, operation: str, device: Device) -> list[str]:
    return [name for name in config.kernels_of(operation) if not _why_not(operation, name, device)]


def _unable(config: Config, device: Device) -> list[tuple[str, str]]:
    """(kernel, why) of those that the device cannot run."""
    named = [(operation, name) for operation in config.operations for name in config.kernels_of(operation)]
    return [(f"{operation}/{name}", why) for operation, name in named if (why := _why_not(operation, name, device))]


def _why_not(operation: str, name: str, device: Device) -> str:
    return catalog.get_kernel(operation, name).why_not_on(device.kind, device.capability)


def _time(config: Config, able: dict[str, list[str]], device: Device) -> str:
    """As a range, and what it is made from."""
    protocol, processes, ceilings = config.protocol, processes_of(config.protocol), _ceilings(device)
    each_s = [guess(one, able[one.operation], protocol, device.kind, ceilings)[1] for one in config.workloads]
    guessed_s = processes * sum(each_s)
    start_s = START_S[device.kind] * (1 + len(each_s) * (processes - 1))
    of = "from the datasheet" if ceilings else "for a small device"
    return f"{span(start_s + guessed_s / OFF_BY, start_s + guessed_s * OFF_BY)} by an estimate {of}"


def _ceilings(device: Device) -> dict[str, Any]:
    """What a known card may reach; nothing is measured for it."""
    if (peak := peak_of(device.name)) is None:
        return {}
    products = {dtype: REACHED * peak.tflops(dtype) for dtype in DTYPES}
    return {"matmul_tflops": products, "copy_gb_per_s": REACHED * peak.gb_per_s}
