"""Cross-entropy forward in Triton: one reading of the logits, then one small program that adds the rows' losses.

A block of a row is DEPTH x LANES elements, of which a thread has whole columns. Each lane keeps a maximum and a sum relative
to it, so threads exchange something once a row, not once a block, and an element costs little more than one
exponential. Short rows go several to a program. All sums are in float32, and in a fixed order: two launches and no
atomic addition, so a loss is the same each time. On Hopper the second one is already there when the first one ends.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.catalog import Unsupported, cuda, kernel

LONGEST_HELD = 4_096
"""Columns of the longest row held in registers."""
TOTAL, TOTAL_WARPS = 4_096, 8
"""Losses that the last program adds at a time. Not measured yet."""
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


def tiles(rows, vocab):
    """The tile for a problem: 64 elements a thread. At 768 columns it had the highest speedup of 11 tiles on an H200
    (docs/measurements/cross-entropy-tiles-h200-of-four-2026-11-27.json). Other widths are not measured yet."""
    if vocab > LONGEST_HELD:
        return Tile(1, 4, depth=8, lanes=1024)
    width = triton.next_power_of_2(vocab)
    return Tile(min(max(4096 // width, 1), triton.next_power_of_2(rows), 64), 2)


@kernel(
    "cross_entropy", backend="triton", needs=cuda(min_capability=7.5),
    space={
        "rows": (1, 2, 4, 8, 16, 32, 64), "warps": (1, 2, 4, 8, 16, 32),
        "block": ("held", "1x1024", "2x1024", "4x1024", "8x1024", "1x2048", "2x2048", "4x2048", "1x4096", "2x4096"),
    },
)  # fmt: skip
def triton_cross_entropy(logits, targets, *, settings=None):
    """Cross-entropy in Triton: logits read once, maximum and sum online; two launches, sums in a fixed order."""
    return launch(logits, targets, fitting(logits.shape[-1], **settings) if settings else tiles(*logits.shape))


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


def launch(logits, targets, tile):
    """Mean cross-entropy of logits (rows, vocab) and int64 targets (rows,). Returns a new float32 tensor of shape ()."""
    if logits.ndim != 2 or targets.shape != logits.shape[:1] or targets.dtype != torch.int64:
        shapes = f"{tuple(logits.shape)}, {tuple(targets.shape)} in {targets.dtype}"
        raise Unsupported(f"logits and targets are {shapes}; needs (rows, vocab) and (rows,) in int64")
    if logits.dtype not in DTYPES:
        raise Unsupported(f"logits are in {logits.dtype}; this kernel does float16, bfloat16 and float32")
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    targets = targets.contiguous()
    rows, vocab = logits.shape
    held = not tile.depth
    early = logits.is_cuda and torch.cuda.get_device_capability(logits.device) >= (9, 0)
    count = triton.cdiv(rows, tile.rows) if held else rows
    losses = torch.empty(count, dtype=torch.float32, device=logits.device)
    out = torch.empty((), dtype=torch.float32, device=logits.device)
    with torch.cuda.device_of(logits):  # Triton launches on the current device, which need not be the tensors'
        if held:
            _held[(count,)](
                logits, targets, losses, logits.stride(0), rows, vocab,
                ROWS=tile.rows, WIDTH=triton.next_power_of_2(vocab), EARLY=early, num_warps=tile.warps,
            )  # fmt: skip
        else:
            _in_blocks[(count,)](
                logits, targets, losses, logits.stride(0), vocab,
                DEPTH=tile.depth, LANES=tile.lanes, EARLY=early, num_warps=tile.warps,
            )  # fmt: skip
        _mean[(1,)](
            losses, out, count, rows, BLOCK=TOTAL, EARLY=early, num_warps=TOTAL_WARPS, **({"launch_pdl": True} if early else {})
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows"])
def _held(logits, targets, losses, stride, rows, vocab, ROWS: tl.constexpr, WIDTH: tl.constexpr, EARLY: tl.constexpr):
    """The sum of the losses of ROWS rows of at most WIDTH columns."""
    if EARLY:
        gdc_launch_dependents()
    first = tl.program_id(0).to(tl.int64) * ROWS
    row, col = tl.arange(0, ROWS), tl.arange(0, WIDTH)[None, :]
    there = first + row < rows
    target = tl.load(targets + first + row, mask=there, other=0)
    right = tl.load(logits + (first + row) * stride + target, mask=there, other=0.0).to(tl.float32)
    exists = there[:, None] & (col < vocab)
    values = tl.load(logits + first * stride + row[:, None] * stride + col, mask=exists, other=0.0).to(tl.float32)
    values = tl.where(col < vocab, values, float("-inf"))
    largest = tl.max(values, 1)
    sums = tl.sum(tl.exp2((values - largest[:, None]) * 1.4426950408889634), 1)
    loss = (largest - right) + tl.log2(sums) * 0.6931471805599453
    tl.store(losses + tl.program_id(0), tl.sum(tl.where(there, loss, 0.0), 0))


@triton.jit
def _in_blocks(logits, targets, losses, stride, vocab, DEPTH: tl.constexpr, LANES: tl.constexpr, EARLY: tl.constexpr):
    """The loss of one row."""
    if EARLY:
        gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    right = tl.load(logits + row * stride + target).to(tl.float32)
    place = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    maxima = tl.full([LANES], -3.0e38, tl.float32)  # finite: the difference of two infinities is not a number
    sums = tl.zeros([LANES], tl.float32)
    for start in range(0, vocab, DEPTH * LANES):
        values = tl.load(logits + row * stride + start + place, mask=start + place < vocab, other=float("-inf"))
        values = values.to(tl.float32)
        new = tl.maximum(maxima, tl.max(values, 0))
        sums *= tl.exp2((maxima - new) * 1.4426950408889634)
        sums += tl.sum(tl.exp2((values - new[None, :]) * 1.4426950408889634), 0)
        maxima = new
    largest = tl.max(maxima, 0)
    total = tl.sum(sums * tl.exp2((maxima - largest) * 1.4426950408889634), 0)
    tl.store(losses + row, (largest - right) + tl.log2(total) * 0.6931471805599453)


@triton.jit(do_not_specialize=["count", "rows"])
def _mean(losses, out, count, rows, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    """The sum of all losses over the number of rows, by one program. EARLY: it waits for the first launch itself."""
    if EARLY:
        gdc_wait()
    lanes = tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, count, BLOCK):
        sums += tl.load(losses + start + lanes, mask=start + lanes < count, other=0.0, cache_modifier=".cg")
    tl.store(out, tl.sum(sums, 0) / rows)
