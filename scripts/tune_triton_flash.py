"""Finds the tiles of kernels/operations/attention/triton_flash.py: times a grid of them on this GPU.

Needs torch, triton and this repository. First all tiles with pointers, for every workload; then the best again with the
tensor memory accelerator; then, if asked, with specialised warps. What is known is written after every workload, and a
launch that hangs ends the script, so that an unlucky tile costs one tile. What comes out goes into `tiles` by hand.

    python scripts/tune_triton_flash.py --json tiles.json [--workload 4,16,512,64] [--seconds 150] [--specialised]
"""

import argparse
import importlib.util
import itertools
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F
import triton
from triton.testing import do_bench, do_bench_cudagraph

ROOT = Path(__file__).resolve().parents[1]
WORKLOADS = [
    (1, 8, 512, 64),
    (4, 16, 512, 64),
    (8, 16, 512, 64),
    (32, 8, 128, 64),
    (4, 16, 2048, 64),
    (4, 16, 2048, 128),
    (16, 96, 4096, 64),
    (16, 96, 4096, 128),
]
HANGS_AFTER_S = 30
LARGEST_ERROR = 0.02
"""Of an output that is right, against SDPA's, for N(0, 1) inputs in float16: some 0.002."""


def load_kernel():
    """The kernel's module, by its path: its package would want more than torch and triton."""
    sys.path.insert(0, str(ROOT))
    path = ROOT / "kernels" / "operations" / "attention" / "triton_flash.py"
    spec = importlib.util.spec_from_file_location("triton_flash", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


flash = load_kernel()


# --- which tiles ------------------------------------------------------------------------------------------------------


def pointer_tiles(seq_len, head_dim, causal, small):
    """The grid. Left out: what spills, what does not fit shared memory, 8 warps for 64 rows unless latency is all.

    Where 8 warps share 64 rows, a branch makes ptxas serialise the matrix products: there the mask is "always" applied.
    """
    for block_m, block_n, warps, stages in itertools.product((64, 128), (32, 64, 128), (4, 8), (2, 3, 4)):
        cut_fine = block_m == 64 and warps == 8
        spills = block_m == 128 and warps == 4 and block_n * head_dim > 64 * 64
        shallow_enough = stages < 4 or block_n == 32 or small
        if block_n > seq_len or (cut_fine and not small) or spills or not shallow_enough:
            continue
        if shared_bytes(block_m, block_n, stages, head_dim) <= flash._device(torch.device("cuda", 0)).shared_bytes:
            yield flash.Tile(block_m, block_n, warps, stages, "split")
            if causal:
                yield flash.Tile(block_m, block_n, warps, stages, "always" if cut_fine else "branch")


def shared_bytes(block_m, block_n, stages, head_dim):
    return 2 * head_dim * (block_m + 2 * stages * block_n)


def specialised_tiles(head_dim):
    """128 rows are two warp groups of 64; a third loads."""
    for block_n, stages in ((64, 2), (64, 3), (128, 2), (128, 3)):
        if shared_bytes(2 * 128, block_n, stages, head_dim) <= 227 * 1024:
            yield flash.Tile(128, block_n, 4, stages, "always", tma=True, specialised=True)


# --- one workload -----------------------------------------------------------------------------------------------------


class Problem:
    """A workload, SDPA's answer and time, and what is known of each tile."""

    def __init__(self, sizes, causal):
        self.sizes, self.causal = sizes, causal
        batch, heads, seq_len, head_dim = sizes
        self.table = flash.tiles(head_dim, causal, seq_len, batch * heads, flash._device(torch.device("cuda", 0)))
        self.times_us, self.failures = {}, {}
        self.sdpa_us = None

    @property
    def label(self):
        return "B={} H={} S={} D={}".format(*self.sizes) + (" causal" if self.causal else "")

    def __enter__(self):
        generator = torch.Generator("cuda").manual_seed(0)
        self.inputs = [
            torch.randn(self.sizes, dtype=torch.float16, device="cuda", generator=generator) for _ in range(3)
        ]
        self.expected = F.scaled_dot_product_attention(*self.inputs, is_causal=self.causal)
        if self.sdpa_us is None:
            self.sdpa_us = self.bench(lambda: F.scaled_dot_product_attention(*self.inputs, is_causal=self.causal), 40)
        return self

    def __exit__(self, *error):
        del self.inputs, self.expected

    def call(self, tile):
        return flash.launch(*self.inputs, self.causal, self.sizes[-1] ** -0.5, tile)

    def is_right(self, tile):
        """Compiles as well, which is why this runs on many threads. Remembers why a tile is no good."""
        try:
            torch.cuda.synchronize()  # gives a new thread its CUDA context
            error = self.call(tile).sub_(self.expected).abs_().max().item()  # in place: outputs may be large, and many
            if error < LARGEST_ERROR:  # false for NaN
                return True
            self.failures[tile] = f"wrong by {error:.3g}"
        except Exception as error:  # out of resources, or the compiler gave up
            self.failures[tile] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"
        return False

    def bench(self, function, rep_ms):
        """Microseconds of a call with warm caches: graph replay, or events above 1 ms."""
        if self.sdpa_us is None or self.sdpa_us < 1000:
            return 1000 * do_bench_cudagraph(function, rep=rep_ms, return_mode="median")
        rep_ms = max(rep_ms, 5 * self.sdpa_us / 1000)  # or one call would be all
        return 1000 * do_bench(function, warmup=5, rep=rep_ms, return_mode="median")

    def measure(self, tile, rep_ms):
        self.times_us[tile] = self.bench(lambda: self.call(tile), rep_ms)

    def best(self, count):
        return sorted(self.times_us, key=self.times_us.get)[:count]

    def as_json(self):
        return {
            "workload": self.label,
            "sdpa_us": self.sdpa_us,
            "table": self.table._asdict(),
            "best": [
                tile._asdict() | {"us": self.times_us[tile]} for tile in sorted(self.times_us, key=self.times_us.get)
            ],
            "failed": [tile._asdict() | {"why": why} for tile, why in self.failures.items()],
        }

    def summary(self):
        parts = [f"{self.label:<28} SDPA {self.sdpa_us:9.1f} us"]
        for tile in dict.fromkeys([*self.best(3), self.table]):
            if us := self.times_us.get(tile):
                parts.append(
                    f"{'=' if tile == self.table else ' '} {spelled(tile):<26}{us:9.1f} us {self.sdpa_us / us:5.2f}x"
                )
        return "\n    ".join(parts)


def spelled(tile):
    extras = "".join(f" {name}" for name in ("tma", "specialised") if getattr(tile, name))
    return f"{tile.block_m}x{tile.block_n} w{tile.warps} s{tile.stages} {tile.mask}{extras}"


# --- all of them ------------------------------------------------------------------------------------------------------


class Tuner:
    """Measures phase by phase, within a time, writing down what is known."""

    def __init__(self, problems, seconds, path):
        self.problems, self.path = problems, path
        self.started = time.monotonic()
        self.ends = self.started + seconds
        self.pool = ThreadPoolExecutor(os.cpu_count())
        self.doing, self.since = None, time.monotonic()
        threading.Thread(target=self.watch, daemon=True).start()

    def phase(self, name, tiles_for, until):
        """`tiles_for(problem)` for each problem, until a share of the time is spent."""
        ends = self.started + until * (self.ends - self.started)
        print(f"\n{name}", flush=True)
        for index, problem in enumerate(self.problems):
            now = time.monotonic()
            # Each problem may use what the ones before it left, so that the last is not the one that pays.
            self.one(problem, list(tiles_for(problem)), now + (ends - now) / (len(self.problems) - index))
            self.write()

    def one(self, problem, tiles, ends):
        self.now(f"{problem.label}: compiling {len(tiles)} tiles")
        with problem:
            right = [tile for tile, ok in zip(tiles, self.pool.map(problem.is_right, tiles), strict=True) if ok]
            measured = 0
            for tile in right:
                if time.monotonic() > ends:
                    break
                self.now(f"{problem.label}: timing {spelled(tile)}")
                problem.measure(tile, 10)
                measured += 1
            for tile in problem.best(4):
                self.now(f"{problem.label}: timing {spelled(tile)} again")
                problem.measure(tile, 40)
        self.now(None)
        spent = time.monotonic() - self.started
        print(f"  {problem.summary()}\n    {measured} of {len(tiles)} tiles timed; {spent:.0f} s in all", flush=True)
        for tile in tiles:
            if why := problem.failures.get(tile):
                print(f"    {spelled(tile)}: {why}", flush=True)

    def now(self, doing):
        self.doing, self.since = doing, time.monotonic()

    def watch(self):
        """A kernel that hangs cannot be called back: only the end of the process frees the GPU."""
        while True:
            time.sleep(1)
            if self.doing and time.monotonic() - self.since > HANGS_AFTER_S:
                print(f"gave up: {self.doing} took more than {HANGS_AFTER_S} s", flush=True)
                self.write()
                os._exit(1)

    def write(self):
        if self.path:
            found = {
                "gpu": torch.cuda.get_device_name(),
                "torch": torch.__version__,
                "triton": triton.__version__,
                "workloads": [problem.as_json() for problem in self.problems],
            }
            Path(self.path).write_text(json.dumps(found, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", help="where to write everything that was measured")
    parser.add_argument("--seconds", type=float, default=150, help="time for all of it (150)")
    parser.add_argument("--workload", action="append", metavar="B,H,S,D", help="these instead of the usual ones")
    parser.add_argument("--specialised", action="store_true", help="try specialised warps too, at the end")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a CUDA device")
    workloads = [tuple(map(int, w.split(","))) for w in options.workload] if options.workload else WORKLOADS
    problems = [Problem(sizes, causal) for sizes in workloads for causal in (False, True)]
    device = flash._device(torch.device("cuda", 0))

    def by_pointers(problem):
        batch, heads, seq_len, head_dim = problem.sizes
        small = batch * heads * triton.cdiv(seq_len, 128) < 2 * device.processors
        return dict.fromkeys([problem.table, *pointer_tiles(seq_len, head_dim, problem.causal, small)])

    def by_tma(problem):
        return [tile._replace(tma=True) for tile in problem.best(6) if not tile.tma]

    tuner = Tuner(problems, options.seconds, options.json)
    capability = torch.cuda.get_device_capability()[0]
    tuner.phase("Pointers ('=' is the table's choice)", by_pointers, until=0.65 if capability >= 9 else 1)
    if capability >= 9:
        tuner.phase("Tensor memory accelerator", by_tma, until=0.85 if options.specialised else 1)
    if capability == 9 and options.specialised:
        tuner.phase("Specialised warps", lambda problem: specialised_tiles(problem.sizes[-1]), until=1)


if __name__ == "__main__":
    main()
