"""Ceilings of a device, measured by its child, and refused if the device was busy meanwhile."""

from __future__ import annotations

from kernels.analysis.ceilings import ceilings, why_noisy
from kernels.contract.events import Calibrated
from kernels.host.device import Device
from kernels.host.telemetry import Telemetry
from kernels.parent.child_process import Child

CALIBRATE_LIMIT_S = 120.0


def calibrate(child: Child, device: Device, watch: Telemetry) -> Calibrated:
    """The ceilings of a device, or why they are refused. The child has not run any kernel yet."""
    before = watch.others()
    raw = child.call("calibrate", CALIBRATE_LIMIT_S)
    if others := sorted({*before, *watch.others()}):
        who = f"process {others[0]}" if len(others) == 1 else f"{len(others)} processes"
        return Calibrated(driver=device.driver, refused=f"another program used the device ({who})")
    if why := why_noisy(raw):
        return Calibrated(driver=device.driver, refused=f"the device was busy: {why}")
    return Calibrated(driver=device.driver, ceilings=ceilings(raw))
