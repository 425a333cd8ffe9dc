"""What several GPUs of one host do together: throughput over that of one alone, and whether ratios stay within their intervals.

First one GPU measures a config while the others are idle, then all measure it at once, each as `python -m kernels run` does, with
an empty compiler cache. Results are written after each workload.

    python scripts/several_gpus.py --device cuda:0 --device cuda:1 --out FOLDER [--config canonical] [--effort normal]
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def run_all(devices: list[str], word: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measures the config on all these devices at once. Returns {file: seconds}."""
    begin, children = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as caches:
        for device in devices:
            name = f"{word}-{device.replace(':', '')}.json"
            command = [sys.executable, "-m", "kernels", "run", args.config, "--device", device, "--effort", args.effort]
            environment = os.environ | {variable: f"{caches}/{device}/{variable}" for variable in CACHES}
            command += ["--timing", "--json", str(args.out / name)]
            children[name] = subprocess.Popen(command, cwd=ROOT, env=environment)
        seconds: dict[str, float] = {}
        while len(seconds) < len(children):
            for name, child in children.items():
                if name not in seconds and child.poll() is not None:
                    seconds[name] = time.monotonic() - begin
                    print(f"{name}: exit status {child.returncode} after {seconds[name]:.1f} s", flush=True)
            time.sleep(0.02)
    return {"seconds": seconds}


def ratios(path: Path) -> dict[tuple[str, str], tuple[float, float, float]]:
    """{(workload, kernel): (speedup, low, high)} of a file."""
    table = json.loads(path.read_text())["table"]
    return {
        (row["workload"], row["kernel"]): (row["speedup"], row["speedup_low"], row["speedup_high"])
        for row in table
        if row["speedup"] is not None
    }


def show(folder: Path) -> None:
    """Prints throughput, and each ratio of the GPU that also ran alone."""
    found = json.loads((folder / "seconds.json").read_text())
    (name, alone_s), *_ = found["alone"]["seconds"].items()
    together = found["together"]["seconds"]
    workloads = len({key[0] for key in ratios(folder / name)})
    throughput = sum(alone_s / seconds for seconds in together.values()) / len(together)
    print(
        f"alone {alone_s:.1f} s; together {', '.join(f'{s:.1f}' for s in together.values())} s; {workloads} workloads"
    )
    print(f"throughput of {len(together)} GPUs: {throughput:.3f} x {len(together)} of one")
    alone, beside = ratios(folder / name), ratios(folder / name.replace("alone", "together"))
    inside = 0
    for key, (ratio, low, high) in alone.items():
        if key not in beside:
            print(*key, "has no ratio beside others")
            continue
        other = beside[key]
        overlap = low <= other[2] and other[1] <= high
        inside += overlap
        text = f"{ratio:.4f} ({low:.4f} to {high:.4f}) alone, {other[0]:.4f} ({other[1]:.4f} to {other[2]:.4f}) beside others"
        print(f"{key[0]:46} {key[1]:15} {text}{'' if overlap else ', which disagree'}")
    print(f"{inside} of {len(alone)} ratios agree within their intervals")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", default=[])
    parser.add_argument("--config", default="canonical")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--read", type=Path)
    args = parser.parse_args()
    if args.read:
        show(args.read)
        return 0
    if not args.out or not args.device:
        parser.error("give --device, once for each GPU, and --out; or --read")
    args.out.mkdir(parents=True, exist_ok=True)
    found = {"alone": run_all(args.device[:1], "alone", args)}
    found["together"] = run_all(args.device, "together", args)
    (args.out / "seconds.json").write_text(json.dumps(found))
    show(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
