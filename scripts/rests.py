"""What a pause before a call of 20 ms does to its time, with and without an untimed call right before the pause.

Runs on a CUDA device. Without pauses such calls keep a GPU at its power limit, where its clock hunts.

    python scripts/rests.py [--json rests.json] [--calls 8]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.catalog import get_kernel, load
from kernels.child.clock import CudaClock
from kernels.child.environment import environment
from kernels.child.runtime import CudaRuntime
from kernels.contract.environment import fingerprint
from kernels.host.device import find_device
from kernels.host.environment import commit
from kernels.workload import Workload

WORKLOAD = Workload(operation="attention", sizes={"batch": 16, "heads": 96, "seq_len": 4096, "head_dim": 128})
KERNELS = ("triton-flash", "sdpa")
PAUSES_S = (0.025, 0.05, 0.1, 0.2, 0.4)
GATE_NS = 500_000


def readings(clock: CudaClock, call: Callable[[int], Any], pause_s: float, untimed: bool, calls: int) -> list[float]:
    """ms of each call after its pause."""
    found = []
    for number in range(calls):
        if untimed:
            call(number)
            clock.synchronize()
        clock.rest(int(pause_s * 1e9))
        found.append(round(clock.block(call, [number], GATE_NS, False).ticks_ns[0] / 1e6, 2))
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path)
    options.add_argument("--calls", type=int, default=8)
    chosen = options.parse_args()
    clock, device = CudaClock(CudaRuntime()), find_device("cuda")
    where = environment("cuda") | {"driver": device.driver, "commit": commit()}
    inputs = WORKLOAD.problem.inputs("cuda", 0)
    found: list[dict[str, Any]] = []
    for name in KERNELS:
        kernel = load(get_kernel("attention", name))

        def call(_: int, run: Callable[..., Any] = kernel.call) -> Any:
            return run(*inputs.tensors, **inputs.options)

        call(0)
        for pause_s in PAUSES_S:
            for untimed in (False, True):
                row = {"kernel": name, "pause_s": pause_s, "untimed_before": untimed}
                found.append(row | {"ms": readings(clock, call, pause_s, untimed, chosen.calls)})
                print(
                    f"{name:14} {pause_s:5.3f} s {'untimed call, ' if untimed else '':14}{found[-1]['ms']}", flush=True
                )
    if chosen.json:
        data = {"format": "rests/1", "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        data |= {"environment": where, "fingerprint": fingerprint(where), "workload": WORKLOAD.label, "readings": found}
        chosen.json.write_text(json.dumps(data))


if __name__ == "__main__":
    main()
