"""What the instrument's numbers are worth on this device: cost, planted slowdowns, A/A, the spread between fresh processes,
and what remains of that where the device never rests.

Every repetition is a fresh measuring process. Prints tables; --json keeps every ratio, with what it was measured on, and
goes on from there if the file is there already: what one call has no time for, the next measures.

    python scripts/evidence.py [--json evidence.json] [--seconds 550] [--device cuda]
                               [--processes 10] [--long-processes 5] [--planted 20] [--without-rests 3]
                               [--without-cost]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from kernels.analysis.blocks import is_long, rest_for
from kernels.analysis.statistics import margin_from, word
from kernels.catalog import KERNEL_PATH_VARIABLE
from kernels.contract.events import Calibrated, CrossChecked, Event, Measured, Started
from kernels.host.device import find_device
from kernels.parent import supervisor as supervising
from kernels.protocol import Protocol
from kernels.workload import Ceilings, Config, RunSpec

WORKLOADS = [  # batch, heads, seq_len, head_dim: 5 us to 2 ms on an H200
    (1, 1, 128, 64), (8, 4, 128, 64), (1, 8, 512, 64), (4, 16, 512, 64), (8, 16, 512, 64), (8, 16, 896, 64),
    (4, 16, 2048, 64), (4, 16, 2048, 128), (8, 32, 2048, 128), (8, 32, 4096, 64),
]  # fmt: skip
LONG, LONG_PROCESSES = [(16, 96, 4096, 64), (16, 96, 4096, 128)], 5
"""13 and 20 ms: a quarter of a minute each, so in the first few processes only."""
PLANTED = (16, 96, 1024, 64)
"""The workload of the planted slowdowns."""
COST = [(8, 16, 768, 64), (4, 32, 4096, 128)]
"""About 50 us and above 1 ms."""
WITHOUT_RESTS = [(8, 32, 2048, 128), (4, 32, 4096, 128), (16, 96, 4096, 128)]
"""Long enough for a device at its power limit to show."""
FORMAT = "evidence/3"
SMALL = [(1, 2, 64, 64), (1, 4, 128, 64)]
"""In place of all of these on a CPU, where only the script itself is tried."""


def sizes(shape: tuple[int, ...]) -> dict[str, Any]:
    return {"operation": "attention", "sizes": dict(zip(("batch", "heads", "seq_len", "head_dim"), shape, strict=True))}


class Site:
    """A device, its ceilings, and one fresh process after the other."""

    def __init__(self, device: str) -> None:
        self.device = find_device(device)
        self.ceilings: Ceilings | None = None
        self.environment: dict[str, Any] = {}
        self.cuda = self.device.kind == "cuda"

    def measure(self, kernels: list[str], shapes: list[tuple[int, ...]], seed: int, **plan: Any) -> dict[str, Any]:
        """One process: per workload A/A, speedup and p50 of each kernel, and what it cost."""
        plan["seed"] = seed
        config = Config(
            name="evidence", operation="attention", kernels=kernels, protocol=plan,
            workloads=[sizes(s) for s in (shapes if self.cuda else SMALL)],
        )  # fmt: skip
        spec, events = RunSpec.of(config, self.device.uuid, ceilings=self.ceilings), []

        def emit(event: Event) -> None:
            events.append((time.monotonic(), event))

        supervisor = supervising.Supervisor(spec, self.device, emit)
        supervisor.session.independent = True  # processes of one template would share their address layout
        supervisor.run()
        before, found = 0.0, {}
        for at, event in events:
            match event:
                case Started():
                    self.environment = event.model_dump(mode="json", exclude={"kind"}) | {"uuid": self.device.uuid}
                case Calibrated():
                    self.ceilings = event.ceilings
                case Measured():
                    compiling_s = sum(arm.compile_s or 0 for arm in event.results)
                    found[event.key] = summary(event) | {"wall_s": at - before - compiling_s}
            before = at
        return {"seed": seed, "workloads": found}


def summary(of: Measured) -> dict[str, Any]:
    results = {arm.kernel: arm for arm in of.results if arm.p50_ms is not None}
    nodes = of.protocol.sets if of.mode == "graph" and of.protocol.sets else 1
    arms = [*results.values(), results["sdpa"]]  # it runs twice
    blocks = [block for arm in arms for block in arm.samples_ns or []]
    return {
        "label": of.workload.label,
        "mode": of.mode,
        "rounds": of.protocol.rounds,
        "aa": of.aa,
        "p50_us": {name: arm.p50_ms * 1e3 for name, arm in results.items() if arm.p50_ms},
        "speedup": {
            name: dict(zip(("ratio", "low", "high"), arm.ratio, strict=True)) | {"rounds": arm.rounds}
            for name, arm in results.items()
            if arm.ratio
        },
        "rounds_s": of.protocol.rounds_s,
        "busy_s": sum(busy_ns(block, nodes) for block in blocks) / 1e9,
        "rest_s": sum(rest_ns(block, nodes, of.protocol.rest or 0.0) for block in blocks) / 1e9,
    }


def busy_ns(block: list[float], nodes: int) -> float:
    """Of a block's timed calls or replays, and of the untimed one before it."""
    untimed = 0.0 if nodes == 1 and is_long(statistics.median(block)) else statistics.fmean(block)
    return (sum(block) + untimed) * nodes


def rest_ns(block: list[float], nodes: int, rest: float) -> int:
    return rest_for(Protocol(rest=rest), len(block) * nodes, statistics.median(block))


def relative_spread(values: list[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


def tell_pairs(title: str, processes: list[dict[str, Any]], other: str) -> None:
    heads = ("p50 us", "mode", "A/A off", "words", "ratio", "spread", "p50 spread")
    print(f"\n{title:46}" + "".join(f"{head:>11}" for head in heads))
    false_words = missed = 0
    for key, first in processes[0]["workloads"].items():
        rows = [p["workloads"][key] for p in processes if key in p["workloads"]]
        off = max(abs(r["aa"][0] - 1) for r in rows)
        words = sum(word(r["aa"][1], r["aa"][2], 0.01, r["rounds"]) in ("FASTER", "SLOWER") for r in rows)
        false_words += words
        missed += sum(not r["aa"][1] <= 1 <= r["aa"][2] for r in rows)
        ratios = [r["speedup"][other]["ratio"] for r in rows if other in r["speedup"]]
        p50 = [r["p50_us"]["sdpa"] for r in rows]
        cells = [
            f"{statistics.median(p50):.4g}",
            first["mode"],
            f"{off:.2%}",
            str(words),
            f"{statistics.median(ratios):.3f}",
        ]
        cells += [f"{relative_spread(ratios):.2%}", f"{relative_spread(p50):.2%}"]
        print(f"{first['label']:46}" + "".join(f"{cell:>11}" for cell in cells))
    pairs = sum(len(p["workloads"]) for p in processes)
    print(f"{pairs} A/A pairs in {len(processes)} processes, {false_words} false words, 1 outside {missed} intervals")


def tell_planted(planted: list[dict[str, Any]]) -> None:
    print("\nplanted slowdown: words in fresh processes")
    for name in ("planted-2", "planted-5"):
        words, ratios = [], []
        for process in planted:
            for row in process["workloads"].values():
                if name in row["speedup"]:
                    said = row["speedup"][name]
                    ratios.append(said["ratio"])
                    words.append(word(said["low"], said["high"], margin_from(row["aa"]), said["rounds"]))
        shown = f"{min(ratios):.4f} to {max(ratios):.4f}" if ratios else "not measured"
        print(f"{name}: SLOWER in {words.count('SLOWER')} of {len(words)}, ratio {shown}")


def tell_cost(title: str, process: dict[str, Any]) -> None:
    """Of the rounds' wall time: what kernels took, timed and untimed, and what the device rested."""
    print(f"\n{title}: two arms, verification included, compile and profiler apart")
    for row in process["workloads"].values():
        busy, rest = row["busy_s"] / row["rounds_s"], row["rest_s"] / row["rounds_s"]
        print(
            f"{row['label']:46} {row['wall_s']:6.1f} s; of the rounds kernels are {busy:.0%}, rests {rest:.0%}", end=""
        )
        print(f": kernels are {busy / (1 - rest):.0%} of what is not rest")


def tell(found: dict[str, Any], other: str) -> None:
    if found["pairs"]:
        tell_pairs("A/A and the spread between processes", found["pairs"], other)
    if found["planted"]:
        tell_planted(found["planted"])
    if found["cost"]:
        tell_cost("cost", found["cost"])
    if found["without_rests"]:
        tell_pairs("the same without rests", found["without_rests"], other)
        tell_cost("cost without rests", found["without_rests"][0])


class Evidence:
    """What is asked for, what there is, and a file in between."""

    def __init__(self, site: Site, path: Path | None, seconds: float) -> None:
        self.site, self.path, self.end = site, path, time.monotonic() + seconds
        self.found: dict[str, Any] = {"cost": None, "planted": [], "pairs": [], "without_rests": []}
        if path and path.exists():
            if (given := json.loads(path.read_text()).get("format")) != FORMAT:
                raise SystemExit(f"{path} is of the format {given}, not {FORMAT}: begin another file")
            self.found |= {key: value for key, value in json.loads(path.read_text()).items() if key in self.found}
        self.longest_s: dict[str, float] = {}

    def add(self, what: str, kernels: list[str], shapes: list[tuple[int, ...]], seed: int, **plan: Any) -> bool:
        """One more process; False if there may be no time for it."""
        begin = time.monotonic()
        if begin + 1.2 * self.longest_s.get(what, 0) > self.end:
            return False
        got = self.site.measure(kernels, shapes, seed, **plan)
        self.longest_s[what] = max(self.longest_s.get(what, 0), time.monotonic() - begin)
        if what == "cost":
            self.found["cost"] = got
        else:
            self.found[what].append(got)
        if self.path:
            data = {"format": FORMAT, "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
            self.path.write_text(json.dumps(data | self.site.environment | self.found))
        return True


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path)
    options.add_argument("--device", default="cuda")
    options.add_argument("--processes", type=int, default=10)
    options.add_argument("--long-processes", type=int, default=LONG_PROCESSES, help="of these, with 13 and 20 ms, too")
    options.add_argument("--planted", type=int, default=20)
    options.add_argument("--without-rests", type=int, default=3)
    options.add_argument("--without-cost", action="store_true")
    options.add_argument("--seconds", type=float, default=550)
    chosen = options.parse_args()
    os.environ[KERNEL_PATH_VARIABLE] = str(ROOT / "scripts" / "planted")
    supervising.crosscheck = lambda context, statuses: CrossChecked(seen=[])  # not a part of what is shown here
    site, begun = Site(chosen.device), time.monotonic()
    evidence = Evidence(site, chosen.json, chosen.seconds)
    found, other = evidence.found, "triton-flash" if site.cuda else "eager"
    if found["cost"] is None and not chosen.without_cost:
        evidence.add("cost", ["sdpa", other], COST, 1)
    quick = {"warmup_s": 0.3, "verify_seeds": 1}
    asked: dict[str, tuple[int, list[str], list[tuple[int, ...]], int, dict[str, Any]]] = {
        "planted": (chosen.planted, ["sdpa", "planted-2", "planted-5"], [PLANTED], 0, quick),
        "without_rests": (chosen.without_rests, ["sdpa", other], WITHOUT_RESTS, 2000, quick | {"rest": 0}),
        "pairs": (chosen.processes, ["sdpa", other], WORKLOADS, 1000, quick),
    }
    for what, (wanted, kernels, shapes, seed, plan) in asked.items():
        more = True
        while more and (number := len(found[what])) < wanted:
            longer = LONG if what == "pairs" and number < chosen.long_processes else []
            more = evidence.add(what, kernels, shapes + longer, seed + number, **plan)
    tell(found, other)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
