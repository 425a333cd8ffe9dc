"""Flash attention in Triton, first stage: loads of the next blocks of K and V overlap with the products of this one.

A program has a tile of query rows and streams K and V past it in a pipelined loop (`num_stages`). Blocks that every row sees
whole run in a loop without a mask. Head dims are padded to a power of 2, windows are skipped block by block.
"""

from functools import cache

import torch
import triton
import triton.language as tl

from kernels.catalog import Unsupported, cuda, kernel

LOG2_E = 1.4426950408889634
SMALL = 160 * 1024
"""Bytes of shared memory below which a device gets smaller tiles: compute capability 8.6, 8.9 and 12.x have 99 KiB."""


def tile(head_dim, shared_bytes):
    """Rows of Q, rows of K and V, warps and stages for a head dim. Guesses; nothing is measured yet."""
    small = shared_bytes < SMALL
    if head_dim <= 64:
        return 128, 64, 4, 3
    if head_dim <= 128:
        return (64, 64, 4, 2) if small else (128, 64, 8, 3)
    return (64, 32, 4, 1) if small else (128, 32, 8, 2)


def chosen(settings, head_dim, shared_bytes):
    """The tile of some settings, if shared memory can hold it; without settings, that of the head dim. Raises Unsupported."""
    if not settings:
        return tile(head_dim, shared_bytes)
    rows, keys, warps, stages = (settings[name] for name in ("rows", "keys", "warps", "stages"))
    needed = 2 * triton.next_power_of_2(head_dim) * (rows + 2 * stages * keys)
    if needed > shared_bytes:
        raise Unsupported(f"needs {needed} bytes of shared memory, this device has {shared_bytes}")
    return rows, keys, warps, stages


@kernel(
    "attention", backend="triton", dtypes=("float16", "bfloat16"), needs=cuda(min_capability=8.0),
    space={"rows": (16, 32, 64, 128), "keys": (16, 32, 64, 128), "warps": (4, 8), "stages": (1, 2, 3, 4)},
)  # fmt: skip
def triton_overlapped(q, k, v, *, causal, scale, window=0, settings=None):
    """Flash attention whose loads are pipelined (num_stages), so they overlap with products; head dims 16 to 256."""
    batch, heads, seq_len, head_dim = q.shape
    if not 16 <= head_dim <= 256 or head_dim % 8:
        raise Unsupported(f"head_dim is {head_dim}; this kernel does multiples of 8 from 16 to 256")
    rows, keys, warps, stages = chosen(settings, head_dim, _shared_bytes(q.device))
    out = torch.empty_like(q)
    with torch.cuda.device_of(q):
        _attention[(triton.cdiv(seq_len, rows), heads, batch)](
            q, k, v, out, seq_len, heads // k.shape[1], window, scale * LOG2_E,
            HEAD_DIM=head_dim, WIDTH=triton.next_power_of_2(head_dim), ROWS=rows, KEYS=keys, CAUSAL=causal,
            WINDOWED=window > 0, RAGGED=seq_len % keys != 0, STAGES=stages, num_warps=warps,
        )  # fmt: skip
    return out


@cache
def _shared_bytes(device):
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin if device.type == "cuda" else 2**18


@triton.jit(do_not_specialize=["seq_len", "window"])
def _attention(
    q, k, v, out, seq_len, group, window, scale,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, RAGGED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A tile of ROWS queries of one head; the last tile of a causal head sees the most keys and goes first."""
    place = tl.num_programs(0) - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)
    head = tl.cast(tl.program_id(2) * tl.num_programs(1) + tl.program_id(1), tl.int64)
    kv_head = head // group  # heads of all batches: K and V have 1 / group as many
    first_row = place * ROWS
    rows, columns = first_row + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (rows < seq_len)[:, None] & (columns < HEAD_DIM)[None, :]
    at = head * seq_len * HEAD_DIM + rows[:, None] * HEAD_DIM + columns[None, :]
    queries = tl.load(q + at, mask=inside, other=0.0)
    k += kv_head * seq_len * HEAD_DIM
    v += kv_head * seq_len * HEAD_DIM

    begin, left, right, end = _bounds(first_row, seq_len, window, ROWS, KEYS, CAUSAL, WINDOWED)
    sums = tl.zeros([ROWS, WIDTH], tl.float32)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    if WINDOWED:
        sums, largest, total = _attend(
            queries, k, v, sums, largest, total, rows, begin, left, seq_len, window, scale,
            HEAD_DIM, WIDTH, KEYS, CAUSAL, WINDOWED, True, STAGES,
        )  # fmt: skip
    sums, largest, total = _attend(
        queries, k, v, sums, largest, total, rows, left, right, seq_len, window, scale,
        HEAD_DIM, WIDTH, KEYS, CAUSAL, WINDOWED, False, STAGES,
    )  # fmt: skip
    if CAUSAL or WINDOWED or RAGGED:
        sums, largest, total = _attend(
            queries, k, v, sums, largest, total, rows, right, end, seq_len, window, scale,
            HEAD_DIM, WIDTH, KEYS, CAUSAL, WINDOWED, True, STAGES,
        )  # fmt: skip
    tl.store(out + at, (sums / total[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _bounds(
    first_row, seq_len, window, ROWS: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr
):
    """Keys of a tile: some row sees those from begin to end, every row those from left to right, in whole blocks."""
    begin, left = 0, 0
    end = tl.minimum(seq_len, first_row + ROWS) if CAUSAL else seq_len
    right = (first_row + 1) // KEYS * KEYS if CAUSAL else seq_len // KEYS * KEYS
    if WINDOWED:
        if not CAUSAL:
            end = tl.minimum(seq_len, first_row + ROWS - 1 + window)
            right = tl.minimum(seq_len, first_row + window) // KEYS * KEYS
        begin = tl.maximum(first_row - window + 1, 0) // KEYS * KEYS
        left = tl.minimum(tl.cdiv(tl.maximum(first_row + ROWS - window, 0), KEYS) * KEYS, end)
        right = tl.maximum(left, right)
    return begin, left, right, end


@triton.jit
def _attend(
    queries, k, v, sums, largest, total, rows, first, last, seq_len, window, scale,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    MASKED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Adds the blocks of keys from first to last to the sums, the running maximum and the total of the weights."""
    columns = tl.arange(0, WIDTH)
    for start in tl.range(first, last, KEYS, num_stages=STAGES):
        keys = start + tl.arange(0, KEYS)
        at = tl.cast(start, tl.int64) * HEAD_DIM + tl.arange(0, KEYS)[:, None] * HEAD_DIM + columns[None, :]
        if MASKED:
            inside = (keys < seq_len)[:, None] & (columns < HEAD_DIM)[None, :]
            of_keys = tl.load(k + at, mask=inside, other=0.0)
            of_values = tl.load(v + at, mask=inside, other=0.0)
        elif HEAD_DIM != WIDTH:
            inside = (columns < HEAD_DIM)[None, :]
            of_keys = tl.load(k + at, mask=inside, other=0.0)
            of_values = tl.load(v + at, mask=inside, other=0.0)
        else:
            of_keys = tl.load(k + at)
            of_values = tl.load(v + at)
        scores = tl.dot(queries, tl.trans(of_keys)) * scale
        if MASKED:
            scores = tl.where(_visible(rows, keys, seq_len, window, CAUSAL, WINDOWED), scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        # In a window a row may have seen no key yet: nothing is taken from minus infinity.
        base = tl.where(now == float("-inf"), 0.0, now) if WINDOWED else now
        weights = tl.exp2(scores - base[:, None])
        kept = tl.exp2(largest - base)
        total = total * kept + tl.sum(weights, 1)
        sums = tl.dot(weights.to(of_values.dtype), of_values, sums * kept[:, None])
        largest = now
    return sums, largest, total


@triton.jit
def _visible(rows, keys, seq_len, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):
    """Which row sees which key."""
    visible = (keys < seq_len)[None, :] & (rows >= 0)[:, None]
    if CAUSAL:
        visible &= rows[:, None] >= keys[None, :]
    if WINDOWED:
        visible &= rows[:, None] - keys[None, :] < window
        if not CAUSAL:
            visible &= keys[None, :] - rows[:, None] < window
    return visible
