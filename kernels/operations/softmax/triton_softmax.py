"""Softmax of rows in Triton: a program holds whole rows in registers, so that x is read from memory once.

Short rows go several to a program. A row too long for registers is read twice. Its first reading keeps a maximum and a sum
for each lane, of blocks whose first dimension lies in one thread: threads exchange something once a row, not once a
block. All sums are in float32.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.catalog import Unsupported, cuda, kernel

LONGEST_HELD = 32_768
"""Columns of the longest row held in registers: with 16 warps, 64 float32 a thread."""
MOST_ELEMENTS = 128
"""Of a thread: more would not stay in its registers."""
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class Tile(NamedTuple):
    """The tile shape of a launch."""

    rows: int
    """Rows of a program: a power of two."""
    warps: int
    depth: int = 0
    """Of a block of depth x lanes elements, if a row is read in blocks. 0: rows are held in registers."""
    lanes: int = 0


def tiles(rows, cols):
    """The tile for a problem. On an H100, 16 and 32 warps were the fastest of 12 tiles at 32,768 columns, and no tile of 13 was
    faster than this one at 768 (docs/measurements/softmax-tiles-h100-of-four-2026-11-27.json). Other widths are not measured:
    up to 16,384 columns a thread has 32 elements."""
    if cols > LONGEST_HELD:
        return Tile(1, 8, depth=4, lanes=2048)
    width = triton.next_power_of_2(cols)
    if width > 1024:
        return Tile(1, min(16, width // 1024))
    return Tile(min(4096 // width, triton.next_power_of_2(rows), 64), 4)


@kernel(
    "softmax", backend="triton", needs=cuda(min_capability=7.5),
    space={
        "rows": (1, 2, 4, 8, 16, 32, 64), "warps": (1, 2, 4, 8, 16, 32),
        "block": ("held", "1x1024", "2x1024", "4x1024", "8x1024", "1x2048", "2x2048", "4x2048", "1x4096", "2x4096"),
    },
)  # fmt: skip
def triton_softmax(x, *, settings=None):
    """Softmax in Triton: rows held in registers, longer ones read twice; sums in float32."""
    return launch(x, fitting(x.shape[-1], **settings) if settings else tiles(*x.shape))


def fitting(cols, rows, warps, block):
    """The tile of settings, if registers can hold it. block: "held", or depth x lanes. Raises Unsupported."""
    if block == "held":
        each, tile = rows * triton.next_power_of_2(cols) / (32 * warps), Tile(rows, warps)
    else:
        depth, lanes = map(int, block.split("x"))
        each, tile = depth * lanes / (32 * warps), Tile(1, warps, depth, lanes)
        if rows > 1 or depth * lanes > triton.next_power_of_2(cols):
            raise Unsupported(
                "a row that is read in blocks has a program of its own, rows=1, and is longer than a block"
            )
    if not 2 <= each <= MOST_ELEMENTS:
        raise Unsupported(f"{each:g} elements a thread; this kernel does 2 to {MOST_ELEMENTS}")
    return tile


def launch(x, tile):
    """Softmax of x (rows, cols) with a given tile. Returns a new, contiguous (rows, cols)."""
    if x.ndim != 2 or x.dtype not in DTYPES:
        raise Unsupported(f"x is {tuple(x.shape)} in {x.dtype}; needs (rows, cols) in one of float16 to float32")
    x = x if x.stride(-1) == 1 else x.contiguous()
    rows, cols = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    with torch.cuda.device_of(x):  # Triton launches on the current device, which need not be the tensor's
        if not tile.depth:
            width = triton.next_power_of_2(cols)
            _held[(triton.cdiv(rows, tile.rows),)](
                x, out, x.stride(0), rows, cols, ROWS=tile.rows, WIDTH=width,
                EVEN=rows % tile.rows == 0 and width == cols, num_warps=tile.warps,
            )  # fmt: skip
        else:
            _in_blocks[(rows,)](x, out, x.stride(0), cols, DEPTH=tile.depth, LANES=tile.lanes, num_warps=tile.warps)
    return out


@triton.jit(do_not_specialize=["rows"])
def _held(x, out, stride, rows, cols, ROWS: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr):
    """ROWS rows of at most WIDTH columns. EVEN promises that every row and column of the tile exists."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    if EVEN:
        values = tl.load(x + first * stride + row * stride + col).to(tl.float32)
    else:
        exists = (first + row < rows) & (col < cols)
        values = tl.load(x + first * stride + row * stride + col, mask=exists, other=0.0).to(tl.float32)
        values = tl.where(col < cols, values, float("-inf"))
    powers = tl.exp2((values - tl.max(values, 1)[:, None]) * 1.4426950408889634)
    result = (powers * (1.0 / tl.sum(powers, 1))[:, None]).to(out.dtype.element_ty)
    if EVEN:
        tl.store(out + first * cols + row * cols + col, result)
    else:
        tl.store(out + first * cols + row * cols + col, result, mask=exists)


@triton.jit
def _in_blocks(x, out, stride, cols, DEPTH: tl.constexpr, LANES: tl.constexpr):
    """One row. Each lane keeps its own maximum, and a sum relative to that."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    maxima = tl.full([LANES], -3.0e38, tl.float32)  # finite: the difference of two infinities is not a number
    sums = tl.zeros([LANES], tl.float32)
    for start in range(0, cols, DEPTH * LANES):
        values = tl.load(x + row * stride + start + place, mask=start + place < cols, other=float("-inf"))
        values = values.to(tl.float32)
        new = tl.maximum(maxima, tl.max(values, 0))
        sums *= tl.exp2((maxima - new) * 1.4426950408889634)
        sums += tl.sum(tl.exp2((values - new[None, :]) * 1.4426950408889634), 0)
        maxima = new
    largest = tl.max(maxima, 0)
    scale = 1.0 / tl.sum(sums * tl.exp2((maxima - largest) * 1.4426950408889634), 0)
    for start in range(0, cols, DEPTH * LANES):
        exists = start + place < cols
        values = tl.load(x + row * stride + start + place, mask=exists, other=0.0).to(tl.float32)
        result = tl.exp2((values - largest) * 1.4426950408889634) * scale
        tl.store(out + row * cols + start + place, result.to(out.dtype.element_ty), mask=exists)
