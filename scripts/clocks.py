"""Times an empty, a 9 us, a 60 us and a 23 ms kernel in every mode, in one process: what a clock alone does to a number.

Runs on a CUDA device. Prints a table of medians over repetitions, with (max - min) / median; --json keeps everything.
A change of the instrument must reproduce its own modes within 2%.

    python scripts/clocks.py [--json clocks.json] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import triton
import triton.language as tl
from triton.testing import do_bench, do_bench_cudagraph

from kernels.device import find_device
from kernels.instrument.clock import CudaClock
from kernels.instrument.environment import environment, fingerprint
from kernels.instrument.profiler import look
from kernels.instrument.runtime import CudaRuntime
from kernels.workload import Workload

SDPA = torch.nn.functional.scaled_dot_product_attention
CALLS, SUSTAINED_NS, LEAD_NS = 40, 1e9, 0.25e9


@triton.jit
def _nothing(x, n: tl.constexpr):
    pass


class Case:
    """A kernel with rotating input sets."""

    def __init__(self, name: str, call: Callable[..., Any], sets: list[Any]) -> None:
        self.name, self.sets = name, sets
        self.call = lambda index: call(*sets[index % len(sets)])
        self.warm = lambda index: call(*sets[0])


def cases(cache_bytes: int) -> list[Case]:
    one = torch.zeros(1, device="cuda")
    found = [Case("empty", lambda x: _nothing[(1,)](x, 1), [(one,)])]
    for name, sizes in {
        "9 us": {"batch": 1, "heads": 8, "seq_len": 512, "head_dim": 64},
        "60 us": {"batch": 8, "heads": 16, "seq_len": 896, "head_dim": 64},
        "23 ms": {"batch": 16, "heads": 96, "seq_len": 4096, "head_dim": 128},
    }.items():
        problem = Workload(operation="attention", sizes=sizes).problem
        first = problem.inputs("cuda", 0)
        count = min(256, max(2, 1 + -(-5 * cache_bytes // first.nbytes)))
        sets = [first.tensors, *(problem.inputs("cuda", seed).tensors for seed in range(1, count))]
        found.append(Case(name, SDPA, sets))
    return found


def modes(clock: CudaClock, case: Case) -> dict[str, Callable[[], float]]:
    """Mode -> one repetition, the median in ns."""
    calls = CALLS if case.name != "23 ms" else 8
    enqueue = clock.block(case.call, range(calls), 0, False, None).enqueue_ns
    gate = min(10_000_000, int(1.5 * enqueue) + 100_000)
    dirty = torch.empty(2 * clock.cache_bytes // 4, dtype=torch.int32, device="cuda")

    def block(call: Any, gate_ns: int, flush: bool = False) -> float:
        return statistics.median(clock.block(call, range(calls), gate_ns, flush, None).ticks_ns)

    def write_flushed(index: int) -> Any:
        return case.call(index)

    def after_writes() -> float:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * calls)]
        clock.gate(gate * 4)
        for i in range(calls):
            dirty.zero_()
            events[2 * i].record()
            write_flushed(i)
            events[2 * i + 1].record()
        torch.cuda.synchronize()
        return statistics.median(events[2 * i].elapsed_time(events[2 * i + 1]) * 1e6 for i in range(calls))

    def graph(call: Any, count: int) -> float:
        captured = clock.capture(call, range(count))
        return statistics.median(captured.block(5, 2_000_000, False, None).ticks_ns)

    def sustained() -> float:
        each = statistics.median(clock.block(case.call, range(calls), gate, False, None).ticks_ns)
        launches = max(1, round(20e6 / each))
        lead, chunks = (1 + int(ns / (launches * each)) for ns in (LEAD_NS, SUSTAINED_NS))
        return statistics.median(clock.sustained(case.call, 1, launches, lead, chunks).ticks_ns)

    def host() -> float:
        return statistics.median(clock.host_block(case.call, range(calls), None).ticks_ns)

    def profiled() -> float:
        return statistics.median(look(clock, lambda: case.warm(0))["spans_ns"])

    nodes = max(10, min(256, len(case.sets))) if case.name != "23 ms" else 4
    return {
        "cold (gate, rotated)": lambda: block(case.call, gate),
        "no gate, rotated": lambda: block(case.call, 0),
        "gate, read flush": lambda: block(case.warm, gate * 4, flush=True),
        "gate, write flush": after_writes,
        "warm (gate, one buffer)": lambda: block(case.warm, gate),
        "graph, rotated": lambda: graph(case.call, nodes),
        "graph, one buffer": lambda: graph(case.warm, nodes),
        "sustained": sustained,
        "e2e (host time)": host,
        "profiler span, one buffer": profiled,
        "triton do_bench": lambda: do_bench(lambda: case.warm(0), warmup=25, rep=100, return_mode="median") * 1e6,
        "triton do_bench_cudagraph": lambda: (
            do_bench_cudagraph(lambda: case.warm(0), rep=50, return_mode="median") * 1e6
        ),
    }


def shown(readings: list[float] | None) -> str:
    if not readings:
        return ""
    middle = statistics.median(readings)
    return f"{middle / 1e3:.4g} ({(max(readings) - min(readings)) / middle:.1%})"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path)
    options.add_argument("--repeats", type=int, default=5)
    chosen = options.parse_args()
    clock, device = CudaClock(CudaRuntime()), find_device("cuda")
    found = environment("cuda") | {"driver": device.driver}
    readings: dict[str, dict[str, list[float]]] = {}
    for case in cases(clock.cache_bytes):
        for _ in range(20):
            case.call(0)
        for mode, repeat in modes(clock, case).items():
            try:
                readings.setdefault(mode, {})[case.name] = [repeat() for _ in range(chosen.repeats)]
            except Exception as error:
                print(f"{case.name}, {mode}: {error}", file=sys.stderr)
    names = list(dict.fromkeys(name for row in readings.values() for name in row))
    print(f"{'median us (spread)':28}" + "".join(f"{name:>22}" for name in names))
    for mode, row in readings.items():
        cells = [shown(row.get(name)) for name in names]
        print(f"{mode:28}" + "".join(f"{cell:>22}" for cell in cells))
    if chosen.json:
        data = {"format": "clocks/1", "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        data |= {"environment": found, "fingerprint": fingerprint(found), "n": CALLS, "readings_ns": readings}
        chosen.json.write_text(json.dumps(data))


if __name__ == "__main__":
    main()
