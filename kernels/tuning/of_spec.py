"""A search as an agent runs it: a spec with a plan, its events, and the trials of earlier attempts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from kernels import catalog
from kernels.contract.events import Event, Started
from kernels.contract.search import Search, Trial
from kernels.host.device import Device
from kernels.parent.child_process import Child
from kernels.parent.supervisor import Emit
from kernels.settings import Settings
from kernels.tuning.instrument import Instrument, Live
from kernels.tuning.samplers import CannotTune
from kernels.tuning.tuner import Tuner, now
from kernels.workload import RunSpec


def kernel_digest(info: catalog.KernelInfo) -> str:
    """Of the file alone: a search changes the table beside it."""
    return hashlib.sha256(Path(info.path).read_bytes()).hexdigest()


def why_not(info: catalog.KernelInfo, device: Device) -> str:
    """Why a kernel cannot be tuned on a device; empty if it can."""
    if why := info.why_not_on(device.kind, device.capability):
        return why
    if not info.space:
        return 'it declares no space: @kernel(..., space={"warps": (4, 8)}), and an argument `settings`'
    return "it has environment variables of its own" if info.environment else ""


def first_of(info: catalog.KernelInfo, keys: list[str]) -> list[Settings]:
    """The best settings of earlier searches on these workloads: they are tried first, the newest before all."""
    table = catalog.decides_of(info).whole_table
    return [one.settings for one in reversed(table) if set(one.keys) & set(keys)]


def tune(
    spec: RunSpec,
    device: Device,
    emit: Emit,
    live: Live,
    should_stop: Callable[[], bool],
    warm: Child | None = None,
) -> Search:
    """Raises CannotTune; and Cancelled if it was told to stop."""
    assert spec.tune is not None
    info = catalog.get_kernel(spec.operation, spec.baseline)
    if why := why_not(info, device):
        raise CannotTune(f"{info.full_name} cannot be tuned here: {why}.")
    search = Search(
        operation=spec.operation,
        kernel=info.name,
        sha256=kernel_digest(info),
        plan=spec.tune,
        protocol=spec.protocol,
        space=info.space,
        keys=[one.key for one in spec.workloads],
        workloads=spec.workloads,
        began_at=now(),
        trials=[Trial.model_validate(one) for one in spec.tried],
    )

    def told(event: Event) -> None:
        if isinstance(event, Started):
            tuner.started(event)
        emit(event)

    instrument = Instrument(spec, device, told, warm)
    tuner = Tuner(search, instrument, told, live, should_stop, first_of(info, search.keys))
    return tuner.run()
