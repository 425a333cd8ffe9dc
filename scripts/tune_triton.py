"""Finds the tiles of the Triton matrix product and of the operations that memory limits: times a grid of them on this GPU.

Needs torch, triton and this repository with what the library needs. Calls go round over inputs that together cover
three times the L2, in one CUDA graph, so that memory is what it is in use. Compiles on many threads first; a tile that
fails is listed with the reason; a launch that hangs ends the script. What comes out goes into `tiles` by hand.

    python scripts/tune_triton.py [--operation gemm] [--json tiles.json] [--seconds 80]
"""

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F
import triton

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.analysis.correctness import judge
from kernels.child.reference import Reference, measure
from kernels.operations.cross_entropy import CrossEntropy, triton_cross_entropy
from kernels.operations.gelu import Gelu, triton_gelu
from kernels.operations.gemm import Gemm, triton_gemm
from kernels.operations.layer_norm import LayerNorm, triton_layer_norm
from kernels.operations.mse_loss import MSELoss, triton_mse_loss
from kernels.operations.rms_norm import RMSNorm, triton_rms_norm
from kernels.operations.softmax import Softmax, triton_softmax
from kernels.operations.swish import Swish, triton_swish

PROBLEMS = [
    Gemm(dtype="bfloat16", m=8192, n=8192, k=8192),
    Gemm(dtype="bfloat16", m=4096, n=4096, k=4096),
    Gemm(dtype="bfloat16", m=2048, n=2048, k=2048),
    Gemm(dtype="bfloat16", m=1024, n=1024, k=1024),
    Gemm(dtype="bfloat16", m=16, n=8192, k=8192),
    LayerNorm(dtype="bfloat16", rows=16384, cols=4096),
    LayerNorm(dtype="bfloat16", rows=4096, cols=1024),
    LayerNorm(dtype="float16", rows=8192, cols=768),
    LayerNorm(dtype="bfloat16", rows=65536, cols=128),
    LayerNorm(dtype="bfloat16", rows=4096, cols=16384),
    *(
        of(dtype="bfloat16", rows=rows, cols=cols)
        for of in (Softmax, RMSNorm)
        for rows, cols in ((16384, 4096), (16384, 768), (65536, 128), (4096, 16384), (4096, 32768))
    ),
    CrossEntropy(dtype="bfloat16", rows=8192, vocab=32000),
    CrossEntropy(dtype="bfloat16", rows=4096, vocab=128256),
    CrossEntropy(dtype="bfloat16", rows=16384, vocab=768),
    *(of(dtype="bfloat16", rows=16384, cols=4096) for of in (Gelu, Swish, MSELoss)),
    Gelu(dtype="bfloat16", rows=16384, cols=4096, approximate="tanh"),
]
HANGS_AFTER_S = 40
REPLAYS = 7
MAX_SETS = 32


def gemm_tiles(problem):
    """The grid, and the table's choice first. Left out: what spills, and what does not fit shared memory."""
    device = triton_gemm._device(torch.device("cuda", 0))
    yield triton_gemm.tiles(problem.m, problem.n, device)
    ways = [(False, False)] + [(True, False), (True, True)] * device.tma
    if min(problem.m, problem.n) <= 16:
        blocks, ways = itertools.product((16,), (32, 64, 128), (128, 256), (4,), (3, 4, 5)), ways[:2]
    elif problem.m <= 1024:
        blocks, ways = itertools.product((64, 128), (64, 128), (64, 128), (4, 8), (3, 4)), ways[:2]
    else:
        blocks = [
            (m, n, 64, w, s)
            for m, n in ((128, 128), (128, 256), (256, 128))
            for w, s in itertools.product((4, 8), (3, 4))
        ]
    for (m, n, k, warps, stages), (tma, persistent) in itertools.product(blocks, ways):
        spills = m * n > 64 * 256 * (warps // 4) or (warps == 8 and m * n < 64 * 128 and m > 16)
        leftover = m * n * 2 if persistent else 0
        if not spills and (m + n) * k * 2 * stages + leftover <= device.shared_bytes - 1024:
            yield triton_gemm.Tile(m, n, k, warps, stages, tma, persistent)


def norm_tiles(problem):
    """The grid, and the table's choice first: 4 to 64 elements a thread."""
    yield triton_layer_norm.tiles(problem.rows, problem.cols)
    width = triton.next_power_of_2(problem.cols)
    for rows, warps in itertools.product((1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16)):
        if 4 <= rows * width / (32 * warps) <= 64:
            yield triton_layer_norm.Tile(rows, warps)


def row_tiles(module):
    """The grid of a module, and its table's choice first: rows held, 4 to 64 elements a thread, or read in blocks."""

    def grid(problem):
        yield module.tiles(problem.rows, problem.width)
        width = triton.next_power_of_2(problem.width)
        for rows, warps in itertools.product((1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8, 16, 32)):
            if 4 <= rows * width / (32 * warps) <= 64:
                yield module.Tile(rows, warps)
        for warps, vectors, depth in itertools.product((2, 4, 8, 16), (1, 2), (1, 2, 4, 8)):
            if (lanes := 32 * warps * 8 * vectors) * depth <= width and vectors * depth <= 8:
                yield module.Tile(1, warps, depth, lanes)

    return grid


def stretch_tiles(module, *more):
    """The grid of a module that knows no rows, and its table's choice first: 4 to 64 elements a thread. more: values of the
    tile's other fields."""

    def grid(problem):
        yield module.tiles(problem.rows, problem.cols)
        for warps, each, *others in itertools.product((1, 2, 4, 8, 16), (4, 8, 16, 32, 64), *more):
            yield module.Tile(32 * warps * each, warps, *others)

    return grid


WAYS = {
    "gemm": (gemm_tiles, triton_gemm.launch, lambda a, b: a @ b),
    "layer_norm": (
        norm_tiles,
        triton_layer_norm.launch,
        lambda x, weight, bias, eps: torch.layer_norm(x, weight.shape, weight, bias, eps),
    ),
    "softmax": (row_tiles(triton_softmax), triton_softmax.launch, lambda x: x.softmax(-1)),
    "rms_norm": (
        row_tiles(triton_rms_norm),
        triton_rms_norm.launch,
        lambda x, weight, eps: torch.rms_norm(x, weight.shape, weight, eps),
    ),
    "cross_entropy": (
        row_tiles(triton_cross_entropy),
        triton_cross_entropy.launch,
        lambda logits, targets: F.cross_entropy(logits.float(), targets),
    ),
    "gelu": (stretch_tiles(triton_gelu), triton_gelu.launch, lambda x, approximate: F.gelu(x, approximate=approximate)),
    "swish": (stretch_tiles(triton_swish), triton_swish.launch, F.silu),
    "mse_loss": (
        stretch_tiles(triton_mse_loss, (1, 2, 4, 8, 16)),
        triton_mse_loss.launch,
        lambda values, targets: F.mse_loss(values.float(), targets.float()),
    ),
}


class Tuning:
    """One problem: PyTorch's time, and the time or the fault of every tile."""

    def __init__(self, problem):
        self.problem = problem
        grid, self.launch, self.pytorch = WAYS[problem.name]
        self.tiles = list(dict.fromkeys(grid(problem)))
        self.table, self.times_us, self.failures, self.pytorch_us = self.tiles[0], {}, {}, None

    def run(self, pool, ends, doing):
        """Compiles and checks tiles for two thirds of the time to `ends`, then times them. A fault costs one tile."""
        compiled_by = ends - (ends - time.monotonic()) / 3
        first = self.problem.inputs("cuda", 0)
        doing(f"{self.problem.label()}: compiling {len(self.tiles)} tiles")
        list(pool.map(lambda tile: self.attempt(tile, lambda: self.compile(tile, first, compiled_by)), self.tiles))
        torch.cuda.synchronize()
        reference = Reference(self.problem, first, 0, thorough=False)
        right = [tile for tile in self.tiles if tile not in self.failures and self.is_right(tile, first, reference)]
        count = math.ceil(3 * torch.cuda.get_device_properties(0).L2_cache_size / first.nbytes)
        sets = [first, *(self.problem.inputs("cuda", seed) for seed in range(1, min(max(2, count), MAX_SETS)))]
        doing(f"{self.problem.label()}: timing PyTorch")
        self.pytorch_us = time_us([lambda i=i: self.pytorch(*i.tensors, *i.options.values()) for i in sets])
        for tile in right:
            if time.monotonic() > ends:
                break
            doing(f"{self.problem.label()}: timing {spelled(tile)}")
            self.attempt(tile, lambda tile=tile: self.time(tile, sets))
        doing(None)

    def compile(self, tile, inputs, by):
        if time.monotonic() > by:
            raise TimeoutError("there was no time left to compile it")
        torch.cuda.set_device(0)  # gives a new thread its CUDA context
        self.call(tile, inputs)

    def call(self, tile, inputs):
        return self.launch(*inputs.tensors, *inputs.options.values(), tile)

    def attempt(self, tile, action):
        try:
            return action()
        except Exception as error:  # out of resources, or the compiler gave up
            self.failures[tile] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:140]}"

    def is_right(self, tile, inputs, reference):
        reading = self.attempt(tile, lambda: measure(self.call(tile, inputs), reference))
        if reading and not (said := judge([reading], self.problem.dtype))["correct"]:
            self.failures[tile] = f"wrong: {said['why']}"
        return tile not in self.failures

    def time(self, tile, sets):
        self.times_us[tile] = time_us([lambda i=i: self.call(tile, i) for i in sets])

    def best(self):
        return sorted(self.times_us, key=self.times_us.get)

    def rate(self, us):
        if self.problem.unit == "GB/s":
            return f"{sum(self.problem.bytes_moved()) / us / 1e3:7.0f} GB/s"
        return f"{self.problem.flops() / us / 1e6:7.1f} TFLOP/s"

    def summary(self):
        lines = [f"{self.problem.name} {self.problem.dtype} {self.problem.label()}"]
        lines.append(f"    PyTorch{'':<28}{self.pytorch_us:9.1f} us {self.rate(self.pytorch_us)}")
        for tile in dict.fromkeys([*self.best()[:4], self.table]):
            if us := self.times_us.get(tile):
                mark = "=" if tile == self.table else " "
                lines.append(f"  {mark} {spelled(tile):<35}{us:9.1f} us {self.rate(us)} {self.pytorch_us / us:5.2f}x")
        lines.append(f"    {len(self.times_us)} of {len(self.tiles)} tiles timed")
        return "\n".join([*lines, *(f"    {spelled(tile)}: {why}" for tile, why in self.failures.items())])

    def as_json(self):
        return {
            "operation": self.problem.name,
            "sizes": self.problem.model_dump(),
            "pytorch_us": self.pytorch_us,
            "table": self.table._asdict(),
            "best": [tile._asdict() | {"us": self.times_us[tile]} for tile in self.best()],
            "failed": [tile._asdict() | {"why": why} for tile, why in self.failures.items()],
        }


def time_us(calls):
    """Microseconds of a call: the median replay of one graph of all the calls."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        calls[0]()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    ticks = []
    for _ in range(REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        ticks.append(1000 * start.elapsed_time(end) / len(calls))
    return statistics.median(ticks)


def spelled(tile):
    return " ".join(name if value is True else f"{name}={value}" for name, value in tile._asdict().items() if value)


class Watch:
    """Writes down what is known, and ends a script whose kernel hangs: it cannot be called back."""

    def __init__(self, tunings, path):
        self.tunings, self.path = tunings, path
        self.doing, self.since = None, time.monotonic()
        threading.Thread(target=self.watch, daemon=True).start()

    def now(self, doing):
        self.doing, self.since = doing, time.monotonic()

    def watch(self):
        while True:
            time.sleep(1)
            if self.doing and time.monotonic() - self.since > HANGS_AFTER_S:
                print(f"gave up: {self.doing} took more than {HANGS_AFTER_S} s", flush=True)
                self.write()
                os._exit(1)

    def write(self):
        if self.path:
            found = {
                "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "gpu": torch.cuda.get_device_name(),
                "torch": torch.__version__,
                "triton": triton.__version__,
                "problems": [tuning.as_json() for tuning in self.tunings],
            }
            Path(self.path).write_text(json.dumps(found, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", help="where to write everything that was measured")
    parser.add_argument("--seconds", type=float, default=80, help="time for all of it (80)")
    parser.add_argument("--operation", choices=WAYS, help="only this one")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a CUDA device")
    tunings = [Tuning(problem) for problem in PROBLEMS if options.operation in (None, problem.name)]
    watch, ends = Watch(tunings, options.json), time.monotonic() + options.seconds
    pool = ThreadPoolExecutor(os.cpu_count())
    for number, tuning in enumerate(tunings):
        now = time.monotonic()
        # Each may use what the ones before it left.
        try:
            tuning.run(pool, now + (ends - now) / (len(tunings) - number), watch.now)
            print(tuning.summary(), flush=True)
        except Exception as error:
            print(f"{tuning.problem.label()}: {type(error).__name__}: {error}", flush=True)
        watch.write()


if __name__ == "__main__":
    main()
