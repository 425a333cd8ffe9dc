"""Ceilings of a device, measured by its child, and refused if the device was busy meanwhile."""

from __future__ import annotations

import time

from kernels.analysis.ceilings import ceilings, why_unsteady
from kernels.contract.events import Calibrated, HostLoad
from kernels.host.device import Device
from kernels.host.telemetry import Telemetry
from kernels.parent.child_process import Child

CALIBRATE_LIMIT_S = 120.0
LOOK_S, HOPELESS = 0.1, 0.25
"""A CPU of which others take more than this share in this time is not calibrated: it would be refused after all its rounds."""


def calibrate(child: Child, device: Device, watch: Telemetry) -> Calibrated:
    """The ceilings of a device, or why they are refused. The child has not run any kernel yet."""
    if device.kind == "cpu" and (why := _why_hopeless(watch)):
        return Calibrated(driver=device.driver, refused=why, ceilings=None)
    before = watch.others()
    watch.load.begin()
    raw = child.call("calibrate", CALIBRATE_LIMIT_S)
    load, others = watch.load.end(), sorted({*before, *watch.others()})
    why = _why_contended(others) or (_why_loaded(load) if device.kind == "cpu" else "")
    if not why and (unsteady := why_unsteady(raw)):
        why = f"the device was busy or unsteady: {unsteady}"
    return Calibrated(driver=device.driver, refused=why, ceilings=None if why else ceilings(raw))


def _why_contended(others: list[int]) -> str:
    if not others:
        return ""
    who = f"process {others[0]}" if len(others) == 1 else f"{len(others)} processes"
    return f"another program used the device ({who})"


def _why_hopeless(watch: Telemetry) -> str:
    watch.load.begin()
    time.sleep(LOOK_S)
    load = watch.load.end()
    return _why_loaded(load) if load and load["foreign"] > HOPELESS else ""


def _why_loaded(load: dict[str, float] | None) -> str:
    """Others on a CPU, as for the rounds of a workload."""
    host = HostLoad.model_validate(load) if load else None
    return f"other processes used {host.foreign:.0%} of the CPU time" if host and host.is_busy else ""
