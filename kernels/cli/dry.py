"""run --dry-run: what a run would measure, and for how long, without measuring it."""

from __future__ import annotations

from kernels import catalog
from kernels.analysis.memory import size, why_too_large
from kernels.cli.table import aligned
from kernels.host.device import Device
from kernels.parent.duration import OFF_BY, START_S, guess, span
from kernels.workload import Config, Workload


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
    lines.append(
        f"{len(config.workloads)} workloads, {results} results, {_time(config, able, device.kind)}. Nothing was measured."
    )
    return lines


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


def _time(config: Config, able: dict[str, list[str]], kind: str) -> str:
    """As a range. Ceilings of the device are not known here: a small device is assumed."""
    plan, processes = config.protocol, config.protocol.processes
    guessed_s = sum(guess(w, able[w.operation], plan, kind, {})[1] for w in config.workloads) * processes
    start_s = START_S[kind] * (1 + len(config.workloads) * (processes - 1))
    return f"{span(start_s + guessed_s / OFF_BY, start_s + guessed_s * OFF_BY)} by an estimate for a small device"
