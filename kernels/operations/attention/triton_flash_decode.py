"""Attention of a few queries to many keys, as in decoding: flash attention whose keys are split over programs.

A program holds all queries of the heads that share a KV head as the rows of one tile, at least 16 for the tensor cores, and
streams its share of the keys past them. So K and V are read once, and there are shares enough for every processor. Each
program leaves its sums, maxima and totals in float32. A second launch adds them in the order of the keys, so results repeat;
its programs may start while the first launch ends, and wait for all of it (programmatic dependent launch). Adding in the
first launch, by the last program of each tile, was slower or no different on an H200 with the best tile of every shape.

Which tile a problem gets is data: RULES. A rule without evidence is a guess.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.catalog import Unsupported, cuda, kernel

LOG2_E = 1.4426950408889634
MOST_QUERIES = 16
FEWEST_ROWS = 16
"""Of a tile: what the tensor cores take."""
MOST_ROWS = 128
MOST_SPLITS = 1024
PARTS, ROWS_ADDED = 8192, 2
"""float32 values that a program of the second launch loads at a time, and the rows that it adds at most."""


class Tile(NamedTuple):
    """How a launch is cut up."""

    keys: int
    """Keys of a step."""
    warps: int
    stages: int
    """Blocks of K and of V in shared memory at a time."""
    programs: int = 1
    """Programs for each processor: keys are split until there are so many, or a block of keys for each."""
    swapped: bool = False
    """Scores are keys x rows: keys fill the 64 rows that wgmma wants, which few queries do not."""
    early: bool = True
    """The second launch starts while the first one ends (Hopper and later)."""
    tma: bool = True
    """K and V come by the tensor memory accelerator (Hopper and later), if the head dim is a power of 2."""


class Device(NamedTuple):
    """What the choice of a tile depends on."""

    processors: int
    shared_bytes: int
    """Shared memory that one program may have."""
    tma: bool


class Rule(NamedTuple):
    """The tile of problems within its bounds on a Hopper GPU; the first rule that fits counts."""

    tile: Tile
    most_rows: int = 2**20
    """Queries of the heads that share a KV head."""
    most_width: int = 256
    """Head dim, as the next power of 2."""
    most_keys: int = 2**20
    most_heads: int = 2**26
    """KV heads of all batches."""
    evidence: str = ""
    """The file of docs/measurements that shows it. Empty: not measured."""


MEASURED = "decode-and-gemm-tiles-h200-2026-11-23.json"
RULES = (
    Rule(Tile(64, 4, 4, 2, tma=False), 4, 128, 1024, 8, evidence=MEASURED),
    Rule(Tile(128, 4, 3, 1, swapped=True), 16, 128, evidence=MEASURED),
    Rule(Tile(128, 4, 3, 1, swapped=True), 32, 128, most_heads=8, evidence=MEASURED),
    Rule(Tile(64, 4, 4, 2, early=False), 32, 128, evidence=MEASURED),
    Rule(Tile(128, 4, 3, 1), 64, 128, evidence=MEASURED),
    Rule(Tile(128, 8, 3, 1), 128, 128, evidence=MEASURED),
    Rule(Tile(128, 8, 3, 1), most_width=128),
    Rule(Tile(32, 4, 3, 2)),
)


def tiles(rows, head_dim, all_heads, keys, device):
    """The tile for `rows` queries of each of `all_heads` KV heads."""
    width = triton.next_power_of_2(head_dim)
    if not device.tma or device.shared_bytes < 200 * 1024:  # before Hopper, and 12.x: guesses
        few = device.shared_bytes < 160 * 1024
        return Tile(32 if width > 128 else 64, 4, 2 if few or width > 128 else 3, early=False, tma=False)
    return next(
        one.tile
        for one in RULES
        if rows <= one.most_rows and width <= one.most_width and keys <= one.most_keys and all_heads <= one.most_heads
    )


@kernel(
    "attention",
    backend="triton",
    dtypes=("float16", "bfloat16"),
    needs=cuda(min_capability=8.0),
    limits={"seq_len": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)},
    space={
        "keys": (16, 32, 64, 128, 256), "warps": (4, 8), "stages": (1, 2, 3, 4), "programs": (1, 2, 4),
        "swapped": (False, True), "early": (False, True), "tma": (False, True),
    },
)  # fmt: skip
def triton_flash_decode(q, k, v, *, causal, scale, kv_len=0, settings=None):
    """Attention of up to 16 queries to many keys: grouped heads in one tile, keys split over programs."""
    batch, heads, queries, head_dim = q.shape
    rows, device = heads // k.shape[1] * queries, _device(q.device)
    if settings:
        return launch(q, k, v, causal, scale, fitting(Tile(**settings), head_dim, device))
    return launch(q, k, v, causal, scale, tiles(rows, head_dim, batch * k.shape[1], k.shape[2], device))


def fitting(tile, head_dim, device):
    """The tile, if a device can hold it and has what it asks for. Raises Unsupported."""
    if (tile.tma or tile.early) and not device.tma:
        raise Unsupported("tma and early are for Hopper and later")
    needed = 4 * triton.next_power_of_2(head_dim) * tile.stages * tile.keys
    if needed > device.shared_bytes:
        raise Unsupported(f"needs {needed} bytes of shared memory, this device has {device.shared_bytes}")
    return tile


def launch(q, k, v, causal, scale, tile):
    """Attention of q (B, H, S, D) to k, v (B, Hkv, Skv, D) with a given tile. Returns a new, contiguous (B, H, S, D)."""
    _check(q, k, v, causal)
    q, k, v = (x.contiguous() for x in (q, k, v))
    batch, heads, queries, head_dim = q.shape
    all_heads, length = batch * k.shape[1], k.shape[2]
    rows = heads // k.shape[1] * queries  # of a KV head: these lie one after the other
    height = min(MOST_ROWS, max(FEWEST_ROWS, triton.next_power_of_2(rows)))
    width, high = triton.next_power_of_2(head_dim), triton.cdiv(rows, height)
    device = _device(q.device)
    splits = device.processors * tile.programs // (all_heads * high)
    splits = max(1, min(splits, triton.cdiv(length, tile.keys), MOST_SPLITS))
    tma = tile.tma and device.tma and width == head_dim and k.data_ptr() % 16 == 0 and v.data_ptr() % 16 == 0
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    values = all_heads * splits * rows * (head_dim + 2) if splits > 1 else 0
    parts = torch.empty(values, dtype=torch.float32, device=q.device)
    early = tile.early and device.tma and q.device.type != "cpu"  # Triton's interpreter has no such launch
    with torch.cuda.device_of(q):  # Triton launches on the current device, which may not be the tensors'
        _decode[(all_heads * splits * high,)](
            q, _rows(k, all_heads, tile.keys) if tma else k, _rows(v, all_heads, tile.keys) if tma else v,
            out, parts, all_heads, length, queries, rows, splits, high, scale * LOG2_E,
            HEAD_DIM=head_dim, WIDTH=width, ROWS=height, KEYS=tile.keys, CAUSAL=causal and queries > 1,
            SPLIT=splits > 1, EARLY=early, SWAPPED=tile.swapped, TMA=tma, STAGES=tile.stages, num_warps=tile.warps,
        )  # fmt: skip
        if splits > 1:
            at_once = PARTS // width
            together = min(triton.next_power_of_2(rows), ROWS_ADDED, at_once)
            _reduction[(all_heads, triton.cdiv(rows, together))](
                out, parts, all_heads, rows, splits, HEAD_DIM=head_dim, WIDTH=width,
                SLOTS=triton.next_power_of_2(splits), TOGETHER=together, AT_ONCE=at_once // together, EARLY=early,
                num_warps=4, **({"launch_pdl": True} if early else {}),
            )  # fmt: skip
    return out


def _check(q, k, v, causal):
    shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
    if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or q.shape[1] % k.shape[1]:
        raise Unsupported(f"q, k and v are {shapes}; needs (B, H, S, D) and twice (B, Hkv, Skv, D)")
    if q.dtype not in (torch.float16, torch.bfloat16) or k.dtype != q.dtype or v.dtype != q.dtype:
        raise Unsupported(f"dtypes are {q.dtype}, {k.dtype}, {v.dtype}; this kernel does all float16 or all bfloat16")
    if q.shape[2] > MOST_QUERIES:
        raise Unsupported(f"seq_len is {q.shape[2]}; this kernel does 1 to {MOST_QUERIES} queries")
    if not 32 <= q.shape[3] <= 256 or q.shape[3] % 8:
        raise Unsupported(f"head_dim is {q.shape[3]}; this kernel does multiples of 8 from 32 to 256")
    if causal and k.shape[2] < q.shape[2]:
        raise Unsupported(f"a causal query needs a key: {q.shape[2]} queries, {k.shape[2]} keys")


@cache
def _device(device):
    """Triton's interpreter works on a CPU, where any tile works."""
    if device.type != "cuda":
        return Device(processors=5, shared_bytes=227 * 1024, tma=True)
    properties = torch.cuda.get_device_properties(device)
    return Device(properties.multi_processor_count, properties.shared_memory_per_block_optin, properties.major >= 9)


def _rows(x, all_heads, rows):
    return TensorDescriptor.from_tensor(x.view(all_heads, x.shape[2], x.shape[3]), [1, rows, x.shape[3]])


@triton.jit(do_not_specialize=["all_heads", "length", "queries", "rows", "splits", "high"])
def _decode(
    q, k, v, out, parts, all_heads, length, queries, rows, splits, high, scale,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,
    SPLIT: tl.constexpr, EARLY: tl.constexpr, SWAPPED: tl.constexpr, TMA: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A share of the keys for a tile of rows of one KV head. Tiles of the same keys run side by side."""
    place = tl.program_id(0) % high
    split = tl.program_id(0) // high % splits
    head = tl.cast(tl.program_id(0) // high // splits, tl.int64)
    row, column = place * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < HEAD_DIM)[None, :]
    at = (head * rows + row)[:, None] * HEAD_DIM + column[None, :]
    tile = tl.load(q + at, mask=inside, other=0.0)

    blocks = tl.cdiv(length, KEYS)
    first, last = split * blocks // splits, (split + 1) * blocks // splits
    seen = length + tl.zeros([ROWS], tl.int32)  # keys that a row sees, from the first on
    everyone = length
    if CAUSAL:
        seen += row % queries + 1 - queries
        everyone += 1 - queries
    if SWAPPED:
        sums, largest, total = _attend_swapped(
            tile, k, v, head, first, last, length, seen, everyone, scale, HEAD_DIM, WIDTH, ROWS, KEYS, TMA, STAGES
        )  # fmt: skip
    else:
        sums, largest, total = _attend(
            tile, k, v, head, first, last, length, seen, everyone, scale, HEAD_DIM, WIDTH, ROWS, KEYS, TMA, STAGES
        )  # fmt: skip

    if SPLIT:
        if EARLY:
            gdc_launch_dependents()
        of_part = (head * splits + split) * rows + row
        tl.store(parts + of_part[:, None] * HEAD_DIM + column[None, :], sums, mask=inside)
        statistics = parts + tl.cast(all_heads, tl.int64) * splits * rows * HEAD_DIM
        tl.store(statistics + of_part * 2, largest, mask=row < rows)
        tl.store(statistics + of_part * 2 + 1, total, mask=row < rows)
    else:
        tl.store(out + at, (sums / total[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _attend(
    tile, k, v, head, first, last, length, seen, everyone, scale,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, TMA: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Sums, maxima and totals over blocks of keys. No maximum is minus infinity: a row may see no key of a share."""
    sums = tl.zeros([ROWS, WIDTH], tl.float32)
    largest = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for block in tl.range(first, last, num_stages=STAGES):
        scores = tl.dot(tile, tl.trans(_block(k, head, block * KEYS, length, HEAD_DIM, WIDTH, KEYS, TMA))) * scale
        if (block + 1) * KEYS > everyone:
            keys = block * KEYS + tl.arange(0, KEYS)
            scores = tl.where(keys[None, :] < seen[:, None], scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - now[:, None])
        kept = tl.exp2(largest - now)
        total = total * kept + tl.sum(weights, 1)
        values = _block(v, head, block * KEYS, length, HEAD_DIM, WIDTH, KEYS, TMA)
        sums = tl.dot(weights.to(values.dtype), values, sums * kept[:, None])
        largest = now
    return sums, largest, total


@triton.jit
def _attend_swapped(
    tile, k, v, head, first, last, length, seen, everyone, scale,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, TMA: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """The same with rows as columns."""
    sums = tl.zeros([WIDTH, ROWS], tl.float32)
    largest = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    columns = tl.trans(tile)
    for block in tl.range(first, last, num_stages=STAGES):
        scores = tl.dot(_block(k, head, block * KEYS, length, HEAD_DIM, WIDTH, KEYS, TMA), columns) * scale
        if (block + 1) * KEYS > everyone:
            keys = block * KEYS + tl.arange(0, KEYS)
            scores = tl.where(keys[:, None] < seen[None, :], scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 0))
        weights = tl.exp2(scores - now[None, :])
        kept = tl.exp2(largest - now)
        total = total * kept + tl.sum(weights, 0)
        values = _block(v, head, block * KEYS, length, HEAD_DIM, WIDTH, KEYS, TMA)
        sums = tl.dot(tl.trans(values), weights.to(values.dtype), sums * kept[None, :])
        largest = now
    return tl.trans(sums), largest, total


@triton.jit
def _block(
    x, head, start, length, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr, TMA: tl.constexpr
):  # fmt: skip
    """Rows of K or V from `start` on; those past the end are 0."""
    if TMA:
        block = x.load([head.to(tl.int32), start, 0]).reshape(KEYS, WIDTH)
    else:
        row, column = start + tl.arange(0, KEYS), tl.arange(0, WIDTH)
        inside = (row < length)[:, None] & (column < HEAD_DIM)[None, :]
        at = head * length * HEAD_DIM + row.to(tl.int64)[:, None] * HEAD_DIM + column[None, :]
        block = tl.load(x + at, mask=inside, other=0.0)
    return block


@triton.jit(do_not_specialize=["all_heads", "rows", "splits"])
def _reduction(
    out, parts, all_heads, rows, splits, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, SLOTS: tl.constexpr,
    TOGETHER: tl.constexpr, AT_ONCE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """The second launch: a program adds the parts of TOGETHER rows of a KV head in the order of the keys, AT_ONCE at a time."""
    if EARLY:
        gdc_wait()
    head, start = tl.cast(tl.program_id(0), tl.int64), tl.program_id(1) * TOGETHER
    row, column = start + tl.arange(0, TOGETHER), tl.arange(0, WIDTH)
    statistics = parts + tl.cast(all_heads, tl.int64) * splits * rows * HEAD_DIM
    every = tl.arange(0, SLOTS)
    of_every = (head * splits + every)[:, None] * rows + row[None, :]
    in_every = (every < splits)[:, None] & (row < rows)[None, :]
    largest = tl.max(tl.load(statistics + of_every * 2, mask=in_every, other=-1e30, cache_modifier=".cg"), 0)
    sums = tl.zeros([TOGETHER, WIDTH], tl.float32)
    total = tl.zeros([TOGETHER], tl.float32)
    for first in range(0, splits, AT_ONCE):
        split = first + tl.arange(0, AT_ONCE)
        there = (split < splits)[:, None] & (row < rows)[None, :]
        of_part = (head * splits + split)[:, None] * rows + row[None, :]
        maxima = tl.load(statistics + of_part * 2, mask=there, other=-1e30, cache_modifier=".cg")
        totals = tl.load(statistics + of_part * 2 + 1, mask=there, other=0.0, cache_modifier=".cg")
        at = of_part[:, :, None] * HEAD_DIM + column[None, None, :]
        in_part = there[:, :, None] & (column < HEAD_DIM)[None, None, :]
        part = tl.load(parts + at, mask=in_part, other=0.0, cache_modifier=".cg")
        weights = tl.exp2(maxima - largest[None, :])
        total += tl.sum(weights * totals, 0)
        sums += tl.sum(weights[:, :, None] * part, 0)
    inside = (row < rows)[:, None] & (column < HEAD_DIM)[None, :]
    to = out + (head * rows + row)[:, None] * HEAD_DIM + column[None, :]
    tl.store(to, (sums / total[:, None]).to(out.dtype.element_ty), mask=inside)
