"""How far one capture of a graph, or one allocation of the inputs, moves the time of the same calls; and what cures it.

Runs on a CUDA device. For each kernel three things, in one process:
captures: several graphs of the same calls, replayed in turn, in a random order; each one's median over all.
allocations: several copies of the same inputs at other addresses, timed in turn by single calls; likewise.
pairs: the ratio of two arms that are the same kernel, from two graphs captured once, and captured anew in every round.

    python scripts/captures.py [--json captures.json] [--rounds 20]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from kernels.analysis.statistics import paired_speedup
from kernels.catalog import get_kernel, load
from kernels.child.clock import CudaClock
from kernels.child.environment import environment
from kernels.child.runtime import CudaRuntime
from kernels.contract.environment import fingerprint
from kernels.host.device import find_device
from kernels.host.environment import commit
from kernels.workload import Workload

SHAPES = [(1, 8, 512, 64), (4, 16, 512, 64), (8, 16, 512, 64), (8, 16, 896, 64)]
"""batch, heads, seq_len, head_dim: 6 to 65 us on an H200."""
PLACES = 8
"""Captures, and allocations, beside each other."""
SETS, REPLAYS, CALLS, PAIRS = 40, 5, 40, 6
GATE_NS = 2_000_000


class Timed:
    """A kernel on some copies of its inputs."""

    def __init__(self, clock: CudaClock, call: Callable[..., Any], sets: list[tuple[Any, ...]]) -> None:
        self.clock, self.sets = clock, sets
        self.call = lambda index: call(*sets[index % len(sets)])

    def capture(self) -> Any:
        return self.clock.capture(self.call, range(len(self.sets)))

    def graph_ns(self, graph: Any) -> float:
        return statistics.median(graph.block(REPLAYS, GATE_NS, False).ticks_ns)

    def calls_ns(self) -> float:
        return statistics.median(self.clock.block(self.call, range(CALLS), GATE_NS, False).ticks_ns)


def in_turn(places: list[Callable[[], float]], rounds: int, chance: random.Random) -> list[list[float]]:
    """For each place its reading in every round."""
    readings: list[list[float]] = [[] for _ in places]
    for _ in range(rounds):
        for i in chance.sample(range(len(places)), len(places)):
            readings[i].append(places[i]())
    return readings


def captures(timed: Timed, rounds: int, chance: random.Random) -> list[list[float]]:
    graphs = [timed.capture() for _ in range(PLACES)]
    return in_turn([partial(timed.graph_ns, graph) for graph in graphs], rounds, chance)


def allocations(timed: Timed, call: Callable[..., Any], rounds: int, chance: random.Random) -> list[list[float]]:
    first, places, padding = timed.sets[0], [], []
    for _ in range(PLACES):
        padding.append(torch.empty(chance.randrange(1, 2**22), dtype=torch.uint8, device=first[0].device))
        places.append(Timed(timed.clock, call, [tuple(tensor.clone() for tensor in first)]))
    return in_turn([place.calls_ns for place in places], rounds, chance)


def pair(timed: Timed, rounds: int, anew: bool, chance: random.Random) -> dict[str, float]:
    """The ratio of a kernel to itself over the rounds."""
    arms, first, second = [timed.capture(), timed.capture()], [], []
    for _ in range(rounds):
        if anew:
            arms.clear()
            arms.extend((timed.capture(), timed.capture()))
        for which in chance.sample((0, 1), 2):
            (first, second)[which].append(timed.graph_ns(arms[which]))
    return dict(zip(("ratio", "low", "high"), paired_speedup(first, second), strict=True))


def spread(readings: list[list[float]]) -> tuple[float, float]:
    """(between places, within one): (max - min) / median of the places' medians, and of a place's readings (median)."""
    medians = [statistics.median(each) for each in readings]
    within = [(max(each) - min(each)) / statistics.median(each) for each in readings]
    return (max(medians) - min(medians)) / statistics.median(medians), statistics.median(within)


def measure(clock: CudaClock, shape: tuple[int, ...], rounds: int) -> dict[str, Any]:
    sizes = dict(zip(("batch", "heads", "seq_len", "head_dim"), shape, strict=True))
    workload = Workload(operation="attention", sizes=sizes)
    options = workload.problem.inputs("cuda", 0).options
    kernel = load(get_kernel("attention", "sdpa"))
    sets = [workload.problem.inputs("cuda", seed).tensors for seed in range(SETS)]

    def call(*tensors: Any) -> Any:
        return kernel.call(*tensors, **options)

    timed, chance = Timed(clock, call, sets), random.Random(7)
    return {
        "label": workload.label,
        "captures_ns": captures(timed, rounds, chance),
        "allocations_ns": allocations(timed, call, rounds, chance),
        "captured_once": [pair(timed, rounds, False, chance) for _ in range(PAIRS)],
        "captured_anew": [pair(timed, rounds, True, chance) for _ in range(PAIRS)],
    }


def tell(found: dict[str, Any]) -> None:
    print(f"\n{found['label']}")
    for name in ("captures_ns", "allocations_ns"):
        between, within = spread(found[name])
        print(f"  {name[:-3]:14} between {len(found[name])}: {between:.2%}, within one: {within:.2%}")
    for name in ("captured_once", "captured_anew"):
        off = [abs(said["ratio"] - 1) for said in found[name]]
        missed = sum(not said["low"] <= 1 <= said["high"] for said in found[name])
        print(f"  {name:14} |A/A - 1| at most {max(off):.2%}; 1 outside the interval in {missed} of {len(off)}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path)
    options.add_argument("--rounds", type=int, default=20)
    chosen = options.parse_args()
    clock, device = CudaClock(CudaRuntime()), find_device("cuda")
    where = environment("cuda") | {"driver": device.driver, "commit": commit()}
    found: list[dict[str, Any]] = []
    for shape in SHAPES:
        found.append(measure(clock, shape, chosen.rounds))
        tell(found[-1])
        if chosen.json:
            data = {"format": "captures/1", "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
            data |= {"environment": where, "fingerprint": fingerprint(where), "workloads": found}
            chosen.json.write_text(json.dumps(data))


if __name__ == "__main__":
    main()
