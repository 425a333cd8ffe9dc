"""Times an empty kernel and five others from 9 us to 20 ms in every mode, in one process: what a clock alone does to a number.

Runs on a CUDA device. Prints a table of medians over repetitions, with (max - min) / median; --json keeps everything.
A change of the instrument must reproduce its own modes within 2%. Where the package cuda-bench is, NVBench is asked, too.

    python scripts/clocks.py [--json clocks.json] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import triton
import triton.language as tl
from triton.testing import do_bench, do_bench_cudagraph

from kernels.analysis.blocks import GRAPH_BELOW_NS, Estimate, calls_for, gate_for, is_long, rest_for
from kernels.catalog import get_kernel, get_operation, load
from kernels.child.clock import CudaClock
from kernels.child.environment import environment
from kernels.child.profiler import profile
from kernels.child.runtime import CudaRuntime
from kernels.contract.environment import fingerprint
from kernels.host.device import find_device
from kernels.host.environment import commit
from kernels.protocol import Protocol
from kernels.workload import Workload

KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "9 us": ("attention", {"batch": 1, "heads": 8, "seq_len": 512, "head_dim": 64}),
    "55 us": ("layer_norm", {"rows": 8192, "cols": 4096}),
    "60 us": ("attention", {"batch": 8, "heads": 16, "seq_len": 896, "head_dim": 64}),
    "200 us": ("gemm", {"m": 4096, "n": 4096, "k": 4096}),
    "20 ms": ("attention", {"batch": 16, "heads": 96, "seq_len": 4096, "head_dim": 128}),
}
"""About how long; the operation, whose baseline it is; the sizes."""
LONG = "20 ms"
CALLS, LONG_CALLS, SUSTAINED_NS, LEAD_NS = 40, 8, 0.4e9, 0.1e9


@triton.jit
def _nothing(x, n: tl.constexpr):
    pass


class Case:
    """A kernel with rotating input sets."""

    def __init__(self, name: str, call: Callable[..., Any], sets: list[tuple[Any, ...]]) -> None:
        self.name, self.count = name, len(sets)
        self.calls = CALLS if name != LONG else LONG_CALLS
        self.call = lambda index: call(*sets[index % len(sets)])
        self.warm = lambda index: call(*sets[0])
        zeros = [torch.zeros_like(tensor) for tensor in sets[0]]
        self.of_zeros = lambda index: call(*zeros)
        """Zeros cost less power, so the clock may stay higher."""


def cases(cache_bytes: int) -> list[Case]:
    found = [Case("empty", lambda x: _nothing[(1,)](x, 1), [(torch.zeros(1, device="cuda"),)])]
    for name, (operation, sizes) in KERNELS.items():
        problem = Workload(operation=operation, sizes=sizes).problem
        kernel = load(get_kernel(operation, get_operation(operation).baseline))
        first = problem.inputs("cuda", 0)
        count = min(256, max(2, 1 + -(-5 * cache_bytes // first.nbytes)))
        sets = [first.tensors, *(problem.inputs("cuda", seed).tensors for seed in range(1, count))]
        found.append(Case(name, partial(kernel.call, **first.options), sets))
    return found


def after_writes(clock: CudaClock, case: Case, gate_ns: int) -> float:
    """The median of calls each behind a write of twice the cache: its dirty lines go back on the call's time."""
    dirty = torch.empty(2 * clock.cache_bytes // 4, dtype=torch.int32, device="cuda")
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * case.calls)]
    clock.gate(gate_ns)
    for i in range(case.calls):
        dirty.zero_()
        events[2 * i].record()
        case.warm(i)
        events[2 * i + 1].record()
    torch.cuda.synchronize()
    return statistics.median(events[2 * i].elapsed_time(events[2 * i + 1]) * 1e6 for i in range(case.calls))


def sustained(clock: CudaClock, call: Callable[[int], Any], each_ns: float, nodes: int) -> float:
    """Back to back; by a graph below 50 us, as the instrument does, for the host could not keep up."""
    if each_ns < GRAPH_BELOW_NS:
        graph = clock.capture(call, range(nodes))
        launch, calls = graph.launch, nodes
    else:
        launch, calls = call, 1
    launches = max(1, round(20e6 / (calls * each_ns)))
    lead, chunks = (1 + int(ns / (launches * calls * each_ns)) for ns in (LEAD_NS, SUSTAINED_NS))
    return statistics.median(clock.sustained(launch, calls, launches, lead, chunks).ticks_ns)


def modes(clock: CudaClock, case: Case) -> dict[str, Callable[[], float]]:
    """Mode -> one repetition, the median in ns."""
    enqueue = clock.block(case.call, range(case.calls), 0, False).enqueue_ns
    gate = min(10_000_000, int(1.5 * enqueue) + 100_000)
    nodes = max(10, min(256, case.count)) if case.name != LONG else 4

    def block(call: Any, gate_ns: int, flush: bool = False) -> float:
        return statistics.median(clock.block(call, range(case.calls), gate_ns, flush, None).ticks_ns)

    def rested(call: Any) -> float:
        """As the instrument does in its mode cold: blocks, each after a rest, and that after an untimed call if it is short."""
        guess = Estimate(min(clock.block(call, range(5), gate, False).ticks_ns), enqueue / case.calls)
        calls, ticks = calls_for(Protocol(), guess, cuda=True), []
        while len(ticks) < case.calls:
            if not is_long(guess.call_ns):
                call(len(ticks))
                clock.synchronize()
            clock.rest(rest_for(Protocol(), calls, guess.call_ns))
            indices = range(len(ticks), len(ticks) + calls)
            ticks += clock.block(call, indices, gate_for(calls, guess.enqueue_ns), False).ticks_ns
        return statistics.median(ticks)

    def graph(call: Any) -> float:
        return statistics.median(clock.capture(call, range(nodes)).block(5, 2_000_000, False).ticks_ns)

    def in_triton(timer: Callable[..., float], **options: Any) -> float:
        return timer(lambda: case.warm(0), return_mode="median", **options) * 1e6

    return {
        "cold": lambda: rested(case.call),
        "gate, rotated, no rest": lambda: block(case.call, gate),
        "no gate, rotated": lambda: block(case.call, 0),
        "gate, read flush": lambda: block(case.warm, gate * 4, flush=True),
        "gate, write flush": lambda: after_writes(clock, case, gate * 4),
        "warm (gate, one buffer)": lambda: block(case.warm, gate),
        "warm, of zeros": lambda: block(case.of_zeros, gate),
        "graph, rotated": lambda: graph(case.call),
        "graph, one buffer": lambda: graph(case.warm),
        "sustained": lambda: sustained(clock, case.call, block(case.call, gate), nodes),
        "sustained, of zeros": lambda: sustained(clock, case.of_zeros, block(case.of_zeros, gate), nodes),
        "e2e (host time)": lambda: statistics.median(clock.host_block(case.call, range(case.calls), None).ticks_ns),
        "triton do_bench": lambda: in_triton(do_bench, warmup=25, rep=100),
        "triton do_bench_cudagraph": lambda: in_triton(do_bench_cudagraph, rep=50),
    }


def shown(readings: list[float] | None) -> str:
    if not readings:
        return ""
    middle = statistics.median(readings)
    return f"{middle / 1e3:.4g} ({(max(readings) - min(readings)) / middle:.1%})"


def tell(readings: dict[str, dict[str, list[float]]], names: list[str]) -> None:
    print(f"{'median us (spread)':28}" + "".join(f"{name:>20}" for name in names))
    for mode, row in readings.items():
        print(f"{mode:28}" + "".join(f"{shown(row.get(name)):>20}" for name in names))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path)
    options.add_argument("--repeats", type=int, default=5)
    chosen = options.parse_args()
    clock, device = CudaClock(CudaRuntime()), find_device("cuda")
    found = environment("cuda") | {"driver": device.driver, "commit": commit()}
    readings: dict[str, dict[str, list[float]]] = {}

    def save() -> None:
        if chosen.json:
            data = {"format": "clocks/1", "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
            data |= {"environment": found, "fingerprint": fingerprint(found), "n": CALLS, "readings_ns": readings}
            chosen.json.write_text(json.dumps(data))

    def read(mode: str, case: Case, repeat: Callable[[], float]) -> None:
        try:
            readings.setdefault(mode, {})[case.name] = [repeat() for _ in range(chosen.repeats)]
        except Exception as error:
            print(f"{case.name}, {mode}: {error}", file=sys.stderr)

    all_cases = cases(clock.cache_bytes)
    for case in all_cases:
        for _ in range(20):
            case.call(0)
        for mode, repeat in modes(clock, case).items():
            read(mode, case, repeat)
        save()
    for case in all_cases:  # after all other clocks, for a profiler stays attached

        def span(case: Case = case) -> float:
            return statistics.median(profile(clock, lambda: case.warm(0)).spans_ns)

        read("profiler span, one buffer", case, span)
    save()
    try:
        import nvbench_clock

        readings |= nvbench_clock.readings({c.name: c.warm for c in all_cases}, min(3, chosen.repeats))
    except Exception as error:
        print(f"NVBench: {type(error).__name__}: {error}", file=sys.stderr)
    save()
    tell(readings, [case.name for case in all_cases])


if __name__ == "__main__":
    main()
