"""What the instrument's numbers are worth on this GPU: A/A, the spread between fresh processes, planted slowdowns.

Every repetition is a fresh measuring process. Prints three tables; --json keeps every ratio.

    python scripts/evidence.py [--json evidence.json] [--processes 4] [--seconds 400]
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
from kernels.catalog import KERNEL_PATH_VARIABLE
from kernels.device import find_device
from kernels.instrument.statistics import margin_from, word
from kernels.supervisor import Supervisor
from kernels.workload import Config, RunSpec

WORKLOADS = [  # batch, heads, seq_len, head_dim: 5 us to 25 ms on an H200
    (1, 1, 128, 64), (8, 4, 128, 64), (1, 8, 512, 64), (4, 16, 512, 64), (8, 16, 512, 64), (8, 16, 896, 64),
    (4, 16, 2048, 64), (4, 16, 2048, 128), (8, 32, 2048, 128), (8, 32, 4096, 64), (16, 96, 4096, 64), (16, 96, 4096, 128),
]  # fmt: skip
PLANTED = (16, 96, 1024, 64)
"""The workload of the planted slowdowns."""


def sizes(shape: tuple[int, ...]) -> dict[str, Any]:
    return {"operation": "attention", "sizes": dict(zip(("batch", "heads", "seq_len", "head_dim"), shape, strict=True))}


def measure(kernels: list[str], shapes: list[tuple[int, ...]], seed: int) -> dict[str, Any]:
    """One fresh process: per workload A/A, and speedup and p50 of each kernel."""
    device, events = find_device("cuda"), []
    plan = {"seed": seed, "warmup_s": 0.3, "verify_seeds": 1}
    config = Config(
        name="evidence", operation="attention", kernels=kernels, protocol=plan, workloads=[sizes(s) for s in shapes]
    )
    supervisor = Supervisor(RunSpec.of(config, device.uuid), device, lambda kind, data: events.append((kind, data)))
    supervisor._crosscheck = lambda: None  # type: ignore[method-assign]  # names of kernels are not needed here
    supervisor.run()
    environment = next(data for kind, data in events if kind == "started")
    found = {}
    for kind, data in events:
        if kind == "measured":
            results = {r["kernel"]: r for r in data["results"] if r.get("stats")}
            found[data["key"]] = {
                "label": supervisor.spec.workloads[len(found)].label,
                "mode": data["mode"],
                "rounds": data["protocol"]["rounds"],
                "aa": data["aa"],
                "p50_us": {name: r["stats"]["p50"] * 1e3 for name, r in results.items()},
                "speedup": {name: r["speedup"] for name, r in results.items() if r.get("speedup")},
            }
    return {"environment": environment, "workloads": found}


def relative_spread(values: list[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


def tell_pairs(processes: list[dict[str, Any]]) -> None:
    heads = ("p50 us", "mode", "A/A off", "words", "ratio", "spread", "p50 spread")
    print(f"\n{'A/A and the spread between processes':46}" + "".join(f"{head:>11}" for head in heads))
    false_words = 0
    for key, first in processes[0]["workloads"].items():
        rows = [p["workloads"][key] for p in processes if key in p["workloads"]]
        off = max(abs(r["aa"][0] - 1) for r in rows)
        words = sum(word(r["aa"][1], r["aa"][2], 0.01, r["rounds"]) in ("FASTER", "SLOWER") for r in rows)
        false_words += words
        ratios = [r["speedup"]["triton-flash"]["ratio"] for r in rows if "triton-flash" in r["speedup"]]
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
    print(f"{pairs} A/A pairs in {len(processes)} processes, {false_words} false words at the margin of 1%")


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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path)
    options.add_argument("--processes", type=int, default=4)
    options.add_argument("--seconds", type=float, default=400)
    chosen = options.parse_args()
    os.environ[KERNEL_PATH_VARIABLE] = str(ROOT / "scripts" / "planted")
    begun, pairs, planted = time.monotonic(), [], []
    data: dict[str, Any] = {"format": "evidence/1", "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}

    def save() -> None:
        if chosen.json:
            chosen.json.write_text(json.dumps(data | {"pairs": pairs, "planted": planted}))

    for number in range(20):
        if time.monotonic() - begun < chosen.seconds / 3:
            planted.append(measure(["sdpa", "planted-2", "planted-5"], [PLANTED], seed=1000 + number))
            save()
    for number in range(chosen.processes):
        if time.monotonic() - begun < chosen.seconds * 0.75:
            pairs.append(measure(["sdpa", "triton-flash"], WORKLOADS, seed=number))
            save()
    tell_pairs(pairs)
    tell_planted(planted)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
