"""RMSNorm forward in Triton: a program holds whole rows in registers, so that x is read from memory once.

Short rows go several to a program, which then reads the weight once for all of them. A row too long for registers is read
twice: its first reading adds squares in each lane, and the threads exchange their sums once a row. Sums are in float32.
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
    """The tile for a problem. 16 elements a thread were best at 4,096 columns on an H200
    (docs/measurements/row-tiles-h200-2026-11-25.jsonl). On an H100, 16 and 32 warps were the fastest of 12 tiles at 32,768
    columns; 2 rows in 4 warps had the highest speedup of 13 tiles at 768
    (docs/measurements/rms-norm-tiles-h100-of-four-2026-11-27.json)."""
    if cols > LONGEST_HELD:
        return Tile(1, 8, depth=4, lanes=2048)
    width = triton.next_power_of_2(cols)
    if width > 1024:
        return Tile(1, min(16, width // 512))
    return Tile(min(max(2048 // width, 1), triton.next_power_of_2(rows), 64), 4)


@kernel(
    "rms_norm", backend="triton", needs=cuda(min_capability=7.5),
    space={
        "rows": (1, 2, 4, 8, 16, 32, 64), "warps": (1, 2, 4, 8, 16, 32),
        "block": ("held", "1x1024", "2x1024", "4x1024", "8x1024", "1x2048", "2x2048", "4x2048", "1x4096", "2x4096"),
    },
)  # fmt: skip
def triton_rms_norm(x, weight, *, eps, settings=None):
    """Fused RMSNorm in Triton: rows held in registers, longer ones read twice; sums in float32."""
    return launch(x, weight, eps, fitting(x.shape[-1], **settings) if settings else tiles(*x.shape))


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


def launch(x, weight, eps, tile):
    """RMSNorm of x (rows, cols) with weight (cols,) and a given tile. Returns a new, contiguous (rows, cols)."""
    if x.ndim != 2 or weight.shape != x.shape[1:]:
        raise Unsupported(f"x and weight are {tuple(x.shape)}, {tuple(weight.shape)}; needs (rows, cols) and (cols,)")
    if x.dtype not in DTYPES or weight.dtype != x.dtype:
        raise Unsupported(f"dtypes are {x.dtype}, {weight.dtype}; this kernel does one of float16 to float32")
    x, weight = (t if t.stride(-1) == 1 else t.contiguous() for t in (x, weight))
    rows, cols = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    with torch.cuda.device_of(x):  # Triton launches on the current device, which need not be the tensors'
        if not tile.depth:
            width = triton.next_power_of_2(cols)
            _held[(triton.cdiv(rows, tile.rows),)](
                x, weight, out, x.stride(0), rows, cols, eps, ROWS=tile.rows, WIDTH=width,
                EVEN=rows % tile.rows == 0 and width == cols, num_warps=tile.warps,
            )  # fmt: skip
        else:
            _in_blocks[(rows,)](
                x, weight, out, x.stride(0), cols, eps, DEPTH=tile.depth, LANES=tile.lanes, num_warps=tile.warps
            )
    return out


@triton.jit(do_not_specialize=["rows"])
def _held(x, weight, out, stride, rows, cols, eps, ROWS: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr):
    """ROWS rows of at most WIDTH columns. EVEN promises that every row and column of the tile exists."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    if EVEN:
        values = tl.load(x + first * stride + row * stride + col).to(tl.float32)
        # Asked for before the sum, so that it is here when the sum is done. Every program reads it: it stays in the cache.
        scale = tl.load(weight + col, eviction_policy="evict_last")
    else:
        exists = (first + row < rows) & (col < cols)
        values = tl.load(x + first * stride + row * stride + col, mask=exists, other=0.0).to(tl.float32)
        scale = tl.load(weight + col, mask=col < cols, other=0.0, eviction_policy="evict_last")
    spread = tl.rsqrt(tl.sum(values * values, 1) / cols + eps)[:, None]
    result = (values * spread * scale.to(tl.float32)).to(out.dtype.element_ty)
    if EVEN:
        tl.store(out + first * cols + row * cols + col, result)
    else:
        tl.store(out + first * cols + row * cols + col, result, mask=exists)


@triton.jit
def _in_blocks(x, weight, out, stride, cols, eps, DEPTH: tl.constexpr, LANES: tl.constexpr):
    """One row."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    squares = tl.zeros([LANES], tl.float32)
    for start in range(0, cols, DEPTH * LANES):
        values = tl.load(x + row * stride + start + place, mask=start + place < cols, other=0.0).to(tl.float32)
        squares += tl.sum(values * values, 0)
    spread = tl.rsqrt(tl.sum(squares, 0) / cols + eps)
    for start in range(0, cols, DEPTH * LANES):
        exists = start + place < cols
        values = tl.load(x + row * stride + start + place, mask=exists, other=0.0).to(tl.float32)
        scale = tl.load(weight + start + place, mask=exists, other=0.0).to(tl.float32)
        tl.store(out + row * cols + start + place, (values * spread * scale).to(out.dtype.element_ty), mask=exists)
