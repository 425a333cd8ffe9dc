"""Swish in Triton: each program loads a stretch of x, 16 bytes a thread at a time, computes in float32, and stores it."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.catalog import Unsupported, cuda, kernel

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class Tile(NamedTuple):
    """The tile shape of a launch."""

    block: int
    """Elements of a program: a power of two."""
    warps: int


def tiles(rows, cols):
    """The tile for a problem: 8 elements, 16 bytes of 16 bits, a thread. The best of a sweep on an H200, in bfloat16 and float16:
    docs/measurements/row-tiles-h200-2026-11-25.jsonl."""
    return Tile(1024, 4)


@kernel(
    "swish", backend="triton", needs=cuda(min_capability=7.5),
    space={"block": (256, 512, 1024, 2048, 4096, 8192, 16384, 32768), "warps": (1, 2, 4, 8, 16)},
)  # fmt: skip
def triton_swish(x, *, settings=None):
    """Swish in Triton, in float32: one exponential and one division for each element."""
    return launch(x, fitting(Tile(**settings)) if settings else tiles(*x.shape))


def fitting(tile):
    """The tile, if a thread has 4 to 64 elements of it. Raises Unsupported."""
    if not 4 <= (each := tile.block / (32 * tile.warps)) <= 64:
        raise Unsupported(f"{each:g} elements a thread; this kernel does 4 to 64")
    return tile


def launch(x, tile):
    """Swish of x of any shape, with a given tile. Returns a new, contiguous tensor."""
    if x.dtype not in DTYPES:
        raise Unsupported(f"x is in {x.dtype}; this kernel does float16, bfloat16 and float32")
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count = x.numel()
    with torch.cuda.device_of(x):  # Triton launches on the current device, which need not be the tensor's
        _swish[(triton.cdiv(count, tile.block),)](
            x, out, count, BLOCK=tile.block, EVEN=count % tile.block == 0, num_warps=tile.warps
        )
    return out


@triton.jit
def _swish(x, out, count, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """BLOCK elements. EVEN promises that all of them exist."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        values = tl.load(x + place).to(tl.float32)
    else:
        values = tl.load(x + place, mask=place < count, other=0.0).to(tl.float32)
    result = (values / (1.0 + tl.exp2(values * -1.4426950408889634))).to(out.dtype.element_ty)
    if EVEN:
        tl.store(out + place, result)
    else:
        tl.store(out + place, result, mask=place < count)
