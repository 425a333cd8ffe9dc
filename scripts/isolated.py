"""Isolated measurements beside shared ones, on a device: A/A, ratios, cost. Writes each event as it comes.

python scripts/isolated.py --device cuda:0 --out isolated.jsonl
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path
from typing import TextIO

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.contract.events import Calibrated, Event, Measured
from kernels.host.device import Device, find_device
from kernels.parent.batches import BATCH_NS
from kernels.parent.supervisor import Supervisor
from kernels.workload import Ceilings, Config, RunSpec

SHAPES = {
    "cuda": ("1,8,512,64", "8,16,512,64", "8,16,896,64", "4,16,2048,128", "8,32,2048,128", "16,96,4096,128"),
    "cpu": ("1,1,16,16", "1,2,64,32", "1,2,128,64", "1,4,256,64", "1,8,512,64", "2,8,768,64"),
}
"""Batch, heads, sequence length, head dim."""
KERNELS = {"cuda": ["sdpa", "triton-flash"], "cpu": ["sdpa", "eager"]}
DTYPE = {"cuda": "float16", "cpu": "float32"}


def sizes_of(shape: str, kind: str) -> dict[str, object]:
    batch, heads, seq_len, head_dim = map(int, shape.split(","))
    return {"batch": batch, "heads": heads, "seq_len": seq_len, "head_dim": head_dim, "dtype": DTYPE[kind]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shapes", nargs="*", default=())
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--most-rounds", type=int, help="default: twice --rounds")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", choices=("isolated", "shared"))
    parser.add_argument("--modes", nargs="*", default=("auto",), help="of the shared measurements, such as auto graph")
    parser.add_argument("--batch-ms", type=float, help="length of isolated batches, instead of the instrument's own")
    parser.add_argument("--processes", type=int, default=1, help="fresh processes that measure each workload")
    parser.add_argument("--rest", type=float, default=1.0, help="the protocol's: rest before a block or batch")
    arguments = parser.parse_args()
    if arguments.batch_ms:
        BATCH_NS.update(dict.fromkeys(BATCH_NS, arguments.batch_ms * 1e6))
    device = find_device(arguments.device)
    most = arguments.most_rounds or 2 * arguments.rounds
    plan = {"verify_seeds": arguments.seeds, "min_rounds": arguments.rounds, "max_rounds": most, "warmup_s": 0.2}
    plan |= {"rest": arguments.rest, "processes": arguments.processes}
    shapes = arguments.shapes or SHAPES[device.kind]
    ceilings: Ceilings | None = None
    with arguments.out.open("a") as out:
        for where, mode in [*(("shared", mode) for mode in arguments.modes), ("isolated", "auto")]:
            if arguments.only in (None, where):
                config = Config(
                    name=where,
                    operation="attention",
                    kernels=KERNELS[device.kind],
                    protocol=plan | {"isolated": where == "isolated", "mode": mode},
                    workloads=[sizes_of(shape, device.kind) for shape in shapes],
                )
                ceilings = measure(config, device, ceilings, out)


def measure(config: Config, device: Device, ceilings: Ceilings | None, out: TextIO) -> Ceilings | None:
    """Measures a config, and writes what is measured as it comes. Returns the ceilings of the device."""
    began = [time.monotonic()]
    known = [ceilings]

    def emit(event: Event) -> None:
        if isinstance(event, Calibrated):
            known[0] = event.ceilings
        if isinstance(event, Measured):
            out.write(event.model_dump_json() + "\n")
            out.flush()
            show(event, time.monotonic() - began[0])
            began[0] = time.monotonic()

    try:
        Supervisor(RunSpec.of(config, device.uuid, ceilings=ceilings), device, emit).run()
    except Exception:
        traceback.print_exc()
    return known[0]


def show(event: Measured, took_s: float) -> None:
    how = event.isolation
    aa = f"A/A {event.aa.ratio:.4f} ({event.aa.low:.4f} to {event.aa.high:.4f})" if event.aa else "no A/A"
    print(f"{event.workload.label} {event.mode}: {aa}, {event.protocol.rounds} rounds, {took_s:.1f} s", flush=True)
    for arm in event.results:
        ratio = f"{arm.speedup:.4f} ({arm.speedup_low:.4f} to {arm.speedup_high:.4f})" if arm.speedup else arm.why[:200]
        print(f"    {arm.kernel}: {arm.status} {(arm.p50_ms or 0) * 1e3:.2f} us {ratio} {arm.log[-300:]}", flush=True)
    if how:
        print("    ", how.model_dump(exclude={"seed"}), event.notes, flush=True)


if __name__ == "__main__":
    main()
