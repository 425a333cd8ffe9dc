"""list, env, calibrate: what there is on this host."""

from __future__ import annotations

import argparse
import json

from kernels import catalog
from kernels.analysis.ceilings import ceilings
from kernels.cli.stop import Stop
from kernels.contract.environment import fingerprint
from kernels.host.device import devices, find_device, locked, print_changes
from kernels.host.environment import commit
from kernels.parent.child_process import Child


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
    print(json.dumps({"devices": listed, "environment": found, "fingerprint": fingerprint(found)}, indent=1))
    return 0


def do_calibrate(arguments: argparse.Namespace, stop: Stop) -> int:
    device = find_device(arguments.device)
    child = Child(device, stop)
    try:
        child.wait_ready()
        with locked(device, stop, print_changes()):
            found = ceilings(child.call("calibrate"))
    finally:
        child.close()
    if arguments.json:
        known = {"device": device.name, "uuid": device.uuid, "driver": device.driver}
        print(json.dumps(known | {"ceilings": found.model_dump()}, indent=1))
        return 0
    print(f"{device.name}, medians of {found.n} calls")
    print(f"  copy    {found.copy_gb_per_s:10.4g} GB/s, read and written bytes together")
    print(f"  read    {found.read_gb_per_s:10.4g} GB/s")
    for dtype, tflops in found.matmul_tflops.items():
        print(f"  matmul  {tflops:10.4g} TFLOP/s {dtype}")
    for mode, us in found.empty_us.items():
        print(f"  empty   {us:10.4g} us {mode}")
    return 0
