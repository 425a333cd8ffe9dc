"""Native sparse attention in Triton: a program holds the heads of one group of one token, which see the same blocks.

It streams the selected blocks past these heads, with the softmax online, in base 2 and in float32. Fewer than 16 heads are
padded to 16, the fewest rows of a tensor core's product. With a window the program does the same over its keys, and adds
both results. Programs of neighbouring tokens run together, so that they find each other's blocks in L2.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.catalog import Unsupported, cuda, kernel

LOG2_E = 1.4426950408889634
FEWEST_ROWS = 16
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SMALL_SHARED = 160 * 1024
"""Bytes of shared memory of a program below which fewer keys are in flight."""


class Tile(NamedTuple):
    """How a launch is cut up."""

    keys: int
    """Keys of a step: a power of two, at least 16."""
    warps: int
    stages: int


def tiles(block_size, head_dim, element_bytes, shared_bytes):
    """The tile for a problem. These numbers are not measured yet."""
    widest = 64 if head_dim * element_bytes <= 256 else 32
    if head_dim * element_bytes > 1024:
        widest = 16
    keys = max(16, min(widest, triton.next_power_of_2(block_size)))
    held = 2 * keys * triton.next_power_of_2(head_dim) * element_bytes
    return Tile(keys, 4, 1 if 2 * held > min(shared_bytes, SMALL_SHARED) else 2)


@kernel(
    "nsa", backend="triton", needs=cuda(min_capability=8.0),
    space={"keys": (16, 32, 64, 128), "warps": (1, 2, 4, 8), "stages": (1, 2, 3, 4)},
)  # fmt: skip
def triton_nsa(q, k, v, block_indices, *, block_size, causal, scale, window=0, settings=None):
    """A program for each token and group: its heads share the selected blocks; online softmax."""
    problem = block_size, q.shape[-1], q.element_size(), _shared_bytes(q.device)
    tile = fitting(Tile(**settings), *problem) if settings else tiles(*problem)
    return launch(q, k, v, block_indices, block_size, causal, scale, window, tile)


def fitting(tile, block_size, head_dim, element_bytes, shared_bytes):
    """The tile, if it is no longer than a block and shared memory can hold it. Raises Unsupported."""
    if tile.keys > max(16, triton.next_power_of_2(block_size)):
        raise Unsupported(f"a step of {tile.keys} keys is longer than a block of {block_size}")
    needed = 2 * tile.keys * triton.next_power_of_2(head_dim) * element_bytes * tile.stages
    if needed > shared_bytes:
        raise Unsupported(f"needs {needed} bytes of shared memory, this device has {shared_bytes}")
    return tile


def launch(q, k, v, block_indices, block_size, causal, scale, window, tile):
    """Attention of q (B, S, H, D) over the selected blocks of k, v (B, S, G, D). Returns a new, contiguous (B, S, H, D)."""
    _check(q, k, v, block_indices, scale)
    q, k, v, block_indices = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v, block_indices))
    batch, length, heads, dim = q.shape
    groups, slots = block_indices.shape[2:]
    width = max(16, triton.next_power_of_2(dim))
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    with torch.cuda.device_of(q):  # Triton launches on the current device, which need not be the tensors'
        _attention[(length, groups, batch)](
            q, k, v, block_indices, out, q.stride(), k.stride(), v.stride(), block_indices.stride(), out.stride(),
            length, scale * LOG2_E,
            HEADS=heads // groups, ROWS=max(FEWEST_ROWS, triton.next_power_of_2(heads // groups)),
            DIM=dim, WIDTH=width, SLOTS=slots, BLOCK=block_size, KEYS=tile.keys, WINDOW=window, CAUSAL=causal,
            PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    return out


def _check(q, k, v, block_indices, scale):
    fits = k.shape == v.shape and q.shape[:2] == k.shape[:2] == block_indices.shape[:2] and q.shape[3] == k.shape[3]
    if not fits or q.shape[2] % k.shape[2] or block_indices.shape[2] != k.shape[2]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v, block_indices))
        raise Unsupported(f"the tensors are {shapes}; needs (B, S, H, D), twice (B, S, G, D), and (B, S, G, N)")
    if q.dtype not in DTYPES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise Unsupported(f"dtypes are {q.dtype}, {k.dtype}, {v.dtype}; this kernel does one of float16 to float32")
    if block_indices.dtype != torch.int32:
        raise Unsupported(f"block_indices are {block_indices.dtype}; this kernel takes int32")
    if q.shape[-1] > 512 or q.shape[2] // k.shape[2] > 128:
        raise Unsupported("this kernel does head dims up to 512, and up to 128 heads of a group")
    if not scale > 0:
        raise Unsupported(f"scale is {scale}; it must be positive, for maxima are taken before scaling")


@cache
def _shared_bytes(device):
    if device.type != "cuda":  # Triton's interpreter works on the CPU, where any tile will do
        return 227 * 1024
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


@triton.jit(do_not_specialize=["length"])
def _attention(
    q, k, v, indices, out, q_strides, k_strides, v_strides, i_strides, out_strides,
    length,
    scale,  # times log2(e)
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
    KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One token and group. HEADS of ROWS rows and DIM of WIDTH columns exist; a block is read in steps of KEYS keys."""
    token, group, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    row, column = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    exists = (row < HEADS)[:, None] & (column < DIM)[None, :]
    head = group * HEADS + row
    q_tile = tl.load(
        q + b * q_strides[0] + token.to(tl.int64) * q_strides[1] + head[:, None] * q_strides[2] + column[None, :],
        mask=exists,
        other=0.0,
    )
    k += b * k_strides[0] + group * k_strides[2]
    v += b * v_strides[0] + group * v_strides[2]
    indices += b * i_strides[0] + token.to(tl.int64) * i_strides[1] + group * i_strides[2]
    end = token + 1 if CAUSAL else length  # of the keys that the token may see

    STEPS: tl.constexpr = (BLOCK + KEYS - 1) // KEYS
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, WIDTH], tl.float32)
    for step in range(SLOTS * STEPS):
        block = tl.load(indices + step // STEPS)
        first = block * BLOCK + step % STEPS * KEYS
        last = tl.where(block < 0, 0, tl.minimum(block * BLOCK + BLOCK, end))
        acc, total, largest = _step(
            q_tile, k, v, k_strides, v_strides, first, 0, last, scale, acc, total, largest,
            DIM, WIDTH, KEYS, PRECISION,
        )  # fmt: skip
    result = acc / tl.where(total > 0, total, 1.0)[:, None]

    if WINDOW:
        begin = tl.maximum(token - WINDOW + 1, 0)
        stop = end if CAUSAL else tl.minimum(token + WINDOW, length)
        largest = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, WIDTH], tl.float32)
        for first in range(begin // KEYS * KEYS, stop, KEYS):
            acc, total, largest = _step(
                q_tile, k, v, k_strides, v_strides, first, begin, stop, scale, acc, total, largest,
                DIM, WIDTH, KEYS, PRECISION,
            )  # fmt: skip
        result += acc / total[:, None]

    tl.store(
        out
        + b * out_strides[0]
        + token.to(tl.int64) * out_strides[1]
        + head[:, None] * out_strides[2]
        + column[None, :],
        result.to(out.dtype.element_ty),
        mask=exists,
    )


@triton.jit
def _step(
    q_tile, k, v, k_strides, v_strides, first, begin, end, scale, acc, total, largest,
    DIM: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """KEYS keys from `first` on; those from `begin` to `end` - 1 are visible. Hidden keys are not read."""
    place, column = first + tl.arange(0, KEYS), tl.arange(0, WIDTH)
    visible = (place >= begin) & (place < end)
    inside = visible[:, None] & (column < DIM)[None, :]
    here = place.to(tl.int64)[:, None]
    keys = tl.load(k + here * k_strides[1] + column[None, :], mask=inside, other=0.0)
    values = tl.load(v + here * v_strides[1] + column[None, :], mask=inside, other=0.0)
    scores = tl.where(visible[None, :], tl.dot(q_tile, tl.trans(keys), input_precision=PRECISION), float("-inf"))
    new = tl.maximum(largest, tl.max(scores, 1) * scale)
    base = tl.where(new == float("-inf"), 0.0, new)  # nothing was visible yet: no difference of two infinities
    weights = tl.math.exp2(scores * scale - base[:, None])
    shrink = tl.math.exp2(largest - base)
    total = total * shrink + tl.sum(weights, 1)
    acc = tl.dot(weights.to(values.dtype), values, acc * shrink[:, None], input_precision=PRECISION)
    return acc, total, new
