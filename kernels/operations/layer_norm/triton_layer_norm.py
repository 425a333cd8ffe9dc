"""LayerNorm forward in Triton: a program holds whole rows in registers, so that x is read from memory once.

Mean and variance are two passes over those registers, in float32: nothing is lost to E[x^2] - E[x]^2. Short rows go
several to a program, which then reads the weight and the bias once for all of them. A row too long for registers is read
twice, in blocks whose means and variances are merged. Rows and warps of a program come from the table beside this file, else from
`tiles`, whose numbers were found on an H200, above 128 columns in 16 bits (2,048 and 8,192 columns follow the others): nothing is
tuned while a kernel runs.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.catalog import Unsupported, cuda, kernel

LONGEST_HELD = 16_384
"""Columns of the longest row held in registers: with 16 warps, 32 float32 a thread."""
BLOCK = 8_192
"""Columns of a block of a longer row."""
MOST_ELEMENTS = 128
"""Of a thread: more would not stay in its registers."""
MANY_ROWS = 512
"""From this many rows a program takes two of the longest held rows: every processor still has a program."""
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class Tile(NamedTuple):
    """The tile shape of a launch."""

    rows: int
    """Rows of a program: a power of two; 1 where rows are read in blocks."""
    warps: int


def tiles(rows, cols, itemsize):
    """The tile for a problem: 32 or 64 elements a thread, in few warps, which then rarely wait for each other. At 768 columns 2
    warps were 2% faster than 4 on an H100 (docs/measurements/layer-norm-search-h100-of-four-2026-11-27.json). At 64 and 128
    columns none of four others was faster than 4 or 8 elements a thread in 4 warps on an H200
    (docs/measurements/layer-norm-tiles-h200-2026-11-28.json)."""
    width = triton.next_power_of_2(cols)
    if cols in (64, 128) and rows >= 16:
        return Tile(1024 // cols if itemsize == 2 else 8, 4)
    if width > LONGEST_HELD // 2:
        return Tile(2 if rows >= MANY_ROWS and cols <= LONGEST_HELD else 1, 16)
    if width > 1024:
        return Tile(1, width // 1024)
    together, warps = (2048 // width, 1) if cols == width else (4096 // width, 2)
    return Tile(min(together, triton.next_power_of_2(rows), 64), warps)


@kernel(
    "layer_norm", backend="triton", needs=cuda(min_capability=7.5),
    space={"rows": (1, 2, 4, 8, 16, 32, 64), "warps": (1, 2, 4, 8, 16)},
)  # fmt: skip
def triton_layer_norm(x, weight, bias, *, eps, settings=None):
    """Fused LayerNorm in Triton: rows held in registers, statistics in float32."""
    return launch(
        x, weight, bias, eps, fitting(Tile(**settings), *x.shape) if settings else tiles(*x.shape, x.element_size())
    )


def fitting(tile, rows, cols):
    """The tile, if registers can hold it. Raises Unsupported."""
    if cols > LONGEST_HELD:
        if tile.rows > 1:
            raise Unsupported("a row that is read in blocks has a program of its own: rows=1")
    elif not 2 <= (each := tile.rows * triton.next_power_of_2(cols) / (32 * tile.warps)) <= MOST_ELEMENTS:
        raise Unsupported(f"{each:g} elements a thread; this kernel does 2 to {MOST_ELEMENTS}")
    return tile


def launch(x, weight, bias, eps, tile):
    """LayerNorm of x (rows, cols) with weight, bias (cols,) and a given tile. Returns a new, contiguous (rows, cols)."""
    if x.ndim != 2 or weight.shape != x.shape[1:] or bias.shape != weight.shape:
        shapes = ", ".join(str(tuple(t.shape)) for t in (x, weight, bias))
        raise Unsupported(f"x, weight and bias are {shapes}; needs (rows, cols) and twice (cols,)")
    if x.dtype not in DTYPES or weight.dtype != x.dtype or bias.dtype != x.dtype:
        raise Unsupported(
            f"dtypes are {x.dtype}, {weight.dtype}, {bias.dtype}; this kernel does one of float16 to float32"
        )
    x, weight, bias = (t if t.stride(-1) == 1 else t.contiguous() for t in (x, weight, bias))
    rows, cols = x.shape
    held = cols <= LONGEST_HELD
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    with torch.cuda.device_of(x):  # Triton launches on the current device, which need not be the tensors'
        if held:
            width = triton.next_power_of_2(cols)
            _held[(triton.cdiv(rows, tile.rows),)](
                x, weight, bias, out, x.stride(0), rows, cols, eps,
                ROWS=tile.rows, WIDTH=width, EVEN=rows % tile.rows == 0 and width == cols, num_warps=tile.warps,
            )  # fmt: skip
        else:
            _in_blocks[(rows,)](x, weight, bias, out, x.stride(0), cols, eps, BLOCK=BLOCK, num_warps=tile.warps)
    return out


@triton.jit(do_not_specialize=["rows"])
def _held(
    x, weight, bias, out, stride, rows, cols, eps, ROWS: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr
):  # fmt: skip
    """ROWS rows of at most WIDTH columns. EVEN promises that every row and column of the tile exists."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    row, col = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    if EVEN:
        values = tl.load(x + first * stride + row * stride + col).to(tl.float32)
        # Asked for before the sums, so that they are here when the sums are done.
        scale, shift = tl.load(weight + col), tl.load(bias + col)
        centred = values - (tl.sum(values, 1) / cols)[:, None]
    else:
        exists = (first + row < rows) & (col < cols)
        values = tl.load(x + first * stride + row * stride + col, mask=exists, other=0.0).to(tl.float32)
        scale = tl.load(weight + col, mask=col < cols, other=0.0)
        shift = tl.load(bias + col, mask=col < cols, other=0.0)
        centred = tl.where(exists, values - (tl.sum(values, 1) / cols)[:, None], 0.0)
    spread = tl.rsqrt(tl.sum(centred * centred, 1) / cols + eps)[:, None]
    result = (centred * spread * scale.to(tl.float32) + shift.to(tl.float32)).to(out.dtype.element_ty)
    if EVEN:
        tl.store(out + first * cols + row * cols + col, result)
    else:
        tl.store(out + first * cols + row * cols + col, result, mask=exists)


@triton.jit
def _in_blocks(x, weight, bias, out, stride, cols, eps, BLOCK: tl.constexpr):
    """One row. Blocks are merged by Chan's formula: each adds its own squares and those of its mean's distance."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    mean = tl.zeros([], tl.float32)
    squares = tl.zeros([], tl.float32)
    for start in range(0, cols, BLOCK):
        exists = start + lanes < cols
        values = tl.load(x + row * stride + start + lanes, mask=exists, other=0.0).to(tl.float32)
        count = tl.minimum(cols - start, BLOCK).to(tl.float32)
        block_mean = tl.sum(values, 0) / count
        centred = tl.where(exists, values - block_mean, 0.0)
        away = block_mean - mean
        squares += tl.sum(centred * centred, 0) + away * away * count * start / (start + count)
        mean += away * count / (start + count)
    spread = tl.rsqrt(squares / cols + eps)
    for start in range(0, cols, BLOCK):
        exists = start + lanes < cols
        values = tl.load(x + row * stride + start + lanes, mask=exists, other=0.0).to(tl.float32)
        scale = tl.load(weight + start + lanes, mask=exists, other=0.0).to(tl.float32)
        shift = tl.load(bias + start + lanes, mask=exists, other=0.0).to(tl.float32)
        result = (values - mean) * spread * scale + shift
        tl.store(out + row * cols + start + lanes, result.to(out.dtype.element_ty), mask=exists)
