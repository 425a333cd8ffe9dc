"""What several GPUs of one host do together: throughput over that of one alone, and whether ratios stay within their intervals.

First one GPU measures a config while the others are idle, then all measure it at once, each as `python -m kernels run` does, with
an empty compiler cache. Results are written after each workload. `--part` does only one of the two. With `--rounds` each workload
has so many rounds: how many it needs otherwise is chance, and would be part of the throughput.

    python scripts/several_gpus.py --device cuda:0 --device cuda:1 --out FOLDER [--config canonical] [--rounds 20] [--part alone]
    python scripts/several_gpus.py --read FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
OF_ROUNDS = ("rounds", "rests", "fresh inputs")
"""Phases that are longer with more rounds."""
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def run_all(devices: list[str], word: str, args: argparse.Namespace) -> None:
    """Measures the config on all these devices at once, each into a file of its own."""
    begin, running = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as caches:
        config = with_rounds(args.config, args.rounds, Path(caches)) if args.rounds else args.config
        for device in devices:
            name = f"{word}-{device.replace(':', '')}.json"
            command = [sys.executable, "-m", "kernels", "run", config, "--device", device]
            command += [] if args.rounds else ["--effort", args.effort]
            environment = os.environ | {variable: f"{caches}/{device}/{variable}" for variable in CACHES}
            command += ["--timing", "--json", str(args.out / name)]
            running[name] = subprocess.Popen(command, cwd=ROOT, env=environment)
        for name, child in running.items():
            print(f"{name}: exit status {child.wait()} after {time.monotonic() - begin:.1f} s", flush=True)


def with_rounds(name: str, rounds: int, folder: Path) -> str:
    """The path of a copy of a config in which each workload has so many rounds."""
    found = yaml.safe_load((ROOT / "kernels" / "configs" / f"{name}.yaml").read_text())
    found["protocol"] = found.get("protocol", {}) | {"min_rounds": rounds, "max_rounds": rounds}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(found))
    return str(path)


def seconds(run: dict[str, Any]) -> dict[str, float]:
    """Workload -> how long it took, start and cross-check left out."""
    return {json.dumps(one["workload"], sort_keys=True): one["took_s"] for one in run["measurements"]}


def ratios(run: dict[str, Any]) -> dict[tuple[str, str], tuple[float, float, float]]:
    """(workload, kernel) -> (speedup, low, high)."""
    rows = [row for row in run["table"] if row["speedup"] is not None]
    return {(row["workload"], row["kernel"]): (row["speedup"], row["speedup_low"], row["speedup_high"]) for row in rows}


def phases(run: dict[str, Any], like: dict[str, dict[str, Any]]) -> Counter[str]:
    """Phase -> its seconds over these workloads, for as many rounds as `like` needed: how many are needed is chance."""
    total: Counter[str] = Counter()
    for one in run["measurements"]:
        if other := like.get(json.dumps(one["workload"], sort_keys=True)):
            share = rounds(other) / rounds(one)
            total.update({phase: s * (share if phase in OF_ROUNDS else 1) for phase, s in one["timing"].items()})
    return total


def rounds(measurement: dict[str, Any]) -> int:
    """Of the arm that was timed longest; at least 1."""
    return max(1, *(result["rounds"] or 0 for result in measurement["results"]))


def show_phases(alone: dict[str, Any], together: dict[str, dict[str, Any]], common: set[str]) -> None:
    """Prints the seconds of each phase for equal rounds, so that it can be seen which one others make longer."""
    keyed = {json.dumps(one["workload"], sort_keys=True): one for one in alone["measurements"]}
    first, *others = [phases(run, {key: keyed[key] for key in common}) for run in (alone, *together.values())]
    for phase, s in first.most_common():
        print(f"{phase:14} alone {s:6.1f} s, at once {', '.join(f'{one[phase]:.1f}' for one in others)} s")
    for words, left in (("", set()), (" and without first calls", {"first call"})):
        totals = [sum(s for phase, s in one.items() if phase not in left) for one in (first, *others)]
        share = sum(totals[0] / s for s in totals[1:]) / len(others)
        print(f"throughput for equal rounds{words}: {share:.3f} x {len(others)} of one")


def show(folder: Path) -> None:
    """Prints throughput over the workloads that all have measured, and each ratio of the GPU that also ran alone."""
    (path,) = folder.glob("alone-*.json")
    alone = json.loads(path.read_text())
    together = {one.name: json.loads(one.read_text()) for one in sorted(folder.glob("together-*.json"))}
    common = set(seconds(alone)).intersection(*map(seconds, together.values()))
    alone_s = sum(seconds(alone)[key] for key in common)
    each_s = [sum(seconds(run)[key] for key in common) for run in together.values()]
    at_once = ", ".join(f"{s:.1f}" for s in each_s)
    print(f"{len(common)} of {len(seconds(alone))} workloads: alone {alone_s:.1f} s, at once {at_once} s")
    print(
        f"throughput of {len(each_s)} GPUs: {sum(alone_s / s for s in each_s) / len(each_s):.3f} x {len(each_s)} of one"
    )
    show_phases(alone, together, common)
    beside, inside, compared = ratios(together[path.name.replace("alone", "together")]), 0, 0
    for key, (ratio, low, high) in ratios(alone).items():
        if key not in beside:
            continue
        other, compared = beside[key], compared + 1
        inside += (agrees := low <= other[2] and other[1] <= high)
        text = f"{ratio:.4f} ({low:.4f} to {high:.4f}) alone, {other[0]:.4f} ({other[1]:.4f} to {other[2]:.4f}) beside others"
        print(f"{key[0]:44} {key[1]:15} {text}{'' if agrees else ', which disagree'}")
    print(f"{inside} of {compared} ratios of the same GPU agree within their intervals")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", default=[])
    parser.add_argument("--config", default="canonical")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--rounds", type=int, help="of each workload, with a config of kernels/configs")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--part", choices=("alone", "together"), help="default: one after the other, and then what came out"
    )
    parser.add_argument(
        "--read", type=Path, help="a folder of --out, also of a run that was cut off in its second part"
    )
    args = parser.parse_args()
    if args.read:
        show(args.read)
        return 0
    if not args.out or not args.device:
        parser.error("give --device, once for each GPU, and --out; or --read")
    args.out.mkdir(parents=True, exist_ok=True)
    if args.part != "together":
        run_all(args.device[:1], "alone", args)
    if args.part != "alone":
        run_all(args.device, "together", args)
    if not args.part:
        show(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
