"""Isolated measurements beside shared ones, on a device: A/A, ratios, cost. Writes each event as it comes.

python scripts/isolated.py --device cuda:0 --out isolated.jsonl
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.contract.events import Calibrated, Event, Measured
from kernels.host.device import find_device
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
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", choices=("isolated", "shared"))
    arguments = parser.parse_args()
    device = find_device(arguments.device)
    ceilings: Ceilings | None = None
    with arguments.out.open("a") as out:
        for shape in arguments.shapes or SHAPES[device.kind]:
            for isolated in (False, True):
                if arguments.only and isolated != (arguments.only == "isolated"):
                    continue
                plan = {"isolated": isolated, "verify_seeds": arguments.seeds}
                plan |= {"min_rounds": arguments.rounds, "max_rounds": 2 * arguments.rounds, "warmup_s": 0.2}
                workloads = [sizes_of(shape, device.kind)]
                config = Config(
                    name="isolated",
                    operation="attention",
                    kernels=KERNELS[device.kind],
                    protocol=plan,
                    workloads=workloads,
                )
                events: list[Event] = []
                began = time.monotonic()
                try:
                    Supervisor(RunSpec.of(config, device.uuid, ceilings=ceilings), device, events.append).run()
                except Exception:
                    traceback.print_exc()
                ceilings = next((e.ceilings for e in events if isinstance(e, Calibrated)), ceilings)
                for event in events:
                    if isinstance(event, Measured):
                        out.write(event.model_dump_json() + "\n")
                        out.flush()
                        show(event, time.monotonic() - began)


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
