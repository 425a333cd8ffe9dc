"""list, env, calibrate: what there is on this host."""

from __future__ import annotations

import argparse
import json
import os
import shutil

from kernels import catalog
from kernels.cli.stop import Stop
from kernels.cli.table import aligned
from kernels.contract.environment import fingerprint
from kernels.host import telemetry
from kernels.host.device import Device, devices, find_device, locked, print_changes
from kernels.host.environment import commit
from kernels.nvrtc import toolchain
from kernels.parent.calibration import calibrate
from kernels.parent.child_process import Child
from kernels.profiling import ncu
from kernels.workload import Ceilings


def do_list(arguments: argparse.Namespace) -> int:
    device = find_device(arguments.device)
    known = catalog.kernels()
    if arguments.json:
        print(
            json.dumps(
                [k.as_json() | {"why_not": k.why_not_on(device.kind, device.capability)} for k in known], indent=1
            )
        )
        return 0
    print(f"kernels for {device.name} ({device.label}):")
    for info in known:
        mark = " (baseline)" if info.name == catalog.get_operation(info.operation).baseline else ""
        why = info.why_not_on(device.kind, device.capability)
        print(f"  {info.full_name + mark:36} {info.backend:10} {info.doc}{f'  [{why}]' if why else ''}")
    return 0


def do_env(arguments: argparse.Namespace, stop: Stop) -> int:
    device = find_device(arguments.device)
    child = Child(device, stop)
    try:
        found = child.wait_ready() | {"driver": device.driver, "commit": commit(), "max_sm_mhz": device.max_sm_mhz}
    finally:
        child.close()
    listed = [d.as_json() for d in devices()]
    said = {"devices": listed, "environment": found, "fingerprint": fingerprint(found), "tools": tools(device)}
    print(json.dumps(said, indent=1))
    return 0


def tools(device: Device) -> dict[str, str]:
    """What kernels and profiles need of this host: "ok", or what is missing and how to get it."""
    compiler = next(
        (name for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and shutil.which(name)), None
    )
    none = "no C compiler on the PATH: Triton and torch.compile need one, for example gcc, for their first calls"
    return {
        "c_compiler": "ok" if compiler else none,
        "cuda_cpp": toolchain.why_not() or "ok",
        "hardware_counters": ncu.why_none(device.kind) or "ok",
    }


def do_calibrate(arguments: argparse.Namespace, stop: Stop) -> int:
    """Measures a device's ceilings and prints them with their intervals; 1 if the device was busy."""
    device = find_device(arguments.device)
    child = Child(device, stop)
    try:
        child.wait_ready()
        with locked(device, stop, print_changes()), telemetry.watching(device) as watch:
            event = calibrate(child, device, watch)
    finally:
        child.close()
    ceilings = event.ceilings
    if arguments.json:
        known = {"device": device.name, "uuid": device.uuid, "driver": device.driver, "refused": event.refused}
        print(json.dumps(known | {"ceilings": ceilings.model_dump() if ceilings else None}, indent=1))
    elif ceilings is None:
        print(f"{device.name}: calibration refused, {event.refused}; try again when the device is idle")
    else:
        print(f"{device.name}, medians with 99% intervals")
        print("\n".join(f"  {line}" for line in aligned(ceilings_table(ceilings))))
    return 0 if ceilings else 1


def ceilings_table(ceilings: Ceilings) -> list[list[str]]:
    figures = [
        ("copy", ceilings.copy_gb_per_s, "copy_gb_per_s", "GB/s", "read and written bytes together"),
        ("read", ceilings.read_gb_per_s, "read_gb_per_s", "GB/s", ""),
        *(("matmul", rate, dtype, "TFLOP/s", dtype) for dtype, rate in ceilings.matmul_tflops.items()),
        *(("empty", us, mode, "us", mode) for mode, us in ceilings.empty_us.items()),
    ]
    return [
        [what, f"{value:.4g} {unit}", "{:.4g} to {:.4g}".format(*ceilings.intervals[key]), more]
        for what, value, key, unit, more in figures
    ]
