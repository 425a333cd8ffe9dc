"""Mean squared error in Triton: a fixed number of programs each add the squares of their blocks, then one small program adds
their sums.

Each lane adds its own squares, so threads exchange something once a program, not once a block. The order of all sums is
fixed: two launches and no atomic addition, so a loss is the same each time.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.catalog import Unsupported, cuda, kernel

TOTAL, TOTAL_WARPS = 1_024, 4
"""Sums that the last program adds at a time. Not measured yet."""
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class Tile(NamedTuple):
    """The tile shape of a launch."""

    block: int
    """Elements of a block: a power of two."""
    warps: int
    programs: int
    """Programs for each processor, at most."""


def tiles(rows, cols):
    """The tile for a problem: 16 elements of each tensor a thread. At float32 16384 x 64 none of seven others was apart from it
    on an H200: docs/measurements/mse-loss-tiles-h200-2026-11-28.json."""
    return Tile(4096, 8, 4)


@kernel(
    "mse_loss", backend="triton", needs=cuda(min_capability=7.5),
    space={"block": (256, 512, 1024, 2048, 4096, 8192, 16384, 32768), "warps": (1, 2, 4, 8, 16), "programs": (1, 2, 4, 8, 16)},
)  # fmt: skip
def triton_mse_loss(values, targets, *, settings=None):
    """Mean squared error in Triton: both tensors read once; two launches, sums in a fixed order."""
    return launch(values, targets, fitting(Tile(**settings)) if settings else tiles(*values.shape))


def fitting(tile):
    """The tile, if a thread has 4 to 64 elements of it. Raises Unsupported."""
    if not 4 <= (each := tile.block / (32 * tile.warps)) <= 64:
        raise Unsupported(f"{each:g} elements a thread; this kernel does 4 to 64")
    return tile


def launch(values, targets, tile):
    """The mean of (values - targets)^2, of tensors of one shape, with a given tile. Returns a new float32 tensor of shape ()."""
    if values.shape != targets.shape:
        raise Unsupported(f"values and targets are {tuple(values.shape)} and {tuple(targets.shape)}; needs one shape")
    if values.dtype not in DTYPES or targets.dtype != values.dtype:
        raise Unsupported(f"dtypes are {values.dtype}, {targets.dtype}; this kernel does one of float16 to float32")
    values, targets = values.contiguous(), targets.contiguous()
    count, device = values.numel(), values.device
    programs = min(tile.programs * _processors(device), triton.cdiv(count, tile.block))
    sums = torch.empty(programs, dtype=torch.float32, device=device)
    out = torch.empty((), dtype=torch.float32, device=device)
    with torch.cuda.device_of(values):  # Triton launches on the current device, which need not be the tensors'
        _squares[(programs,)](
            values, targets, sums, count, BLOCK=tile.block, EVEN=count % tile.block == 0, num_warps=tile.warps
        )  # fmt: skip
        _mean[(1,)](sums, out, programs, count, BLOCK=TOTAL, num_warps=TOTAL_WARPS)
    return out


@cache
def _processors(device):
    """Of the GPU; in Triton's interpreter, on a CPU, a few programs are enough."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


@triton.jit
def _squares(values, targets, sums, count, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """The sum of the squares of every so many-th block. EVEN promises that all elements of all blocks exist."""
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    first = tl.program_id(0).to(tl.int64) * BLOCK
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    for start in range(first, count, step):
        if EVEN:
            difference = tl.load(values + start + lanes).to(tl.float32) - tl.load(targets + start + lanes).to(
                tl.float32
            )
        else:
            exists = start + lanes < count
            difference = tl.load(values + start + lanes, mask=exists, other=0.0).to(tl.float32)
            difference -= tl.load(targets + start + lanes, mask=exists, other=0.0).to(tl.float32)
        total += difference * difference
    tl.store(sums + tl.program_id(0), tl.sum(total, 0))


@triton.jit(do_not_specialize=["programs"])
def _mean(sums, out, programs, count, BLOCK: tl.constexpr):
    """The sum of all sums over the number of elements, by one program."""
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, programs, BLOCK):
        total += tl.load(sums + start + lanes, mask=start + lanes < programs, other=0.0)
    tl.store(out, tl.sum(total, 0) / count)
