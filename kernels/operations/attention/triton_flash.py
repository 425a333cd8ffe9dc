"""Flash attention forward in Triton: a program holds a tile of query rows and streams K and V past it.

The softmax is kept online, in base 2 and in float32, so that no score leaves the chip. Blocks of keys that need no mask
run in a loop without one; only the diagonal (causal) or the ragged end of the keys is masked. Tile shapes come from
`tiles`, or from the settings: nothing is tuned while a kernel runs.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.catalog import Unsupported, cuda, kernel

LOG2_E = 1.4426950408889634
L2_SHARE = 24 * 2**20
"""Bytes of K and V that causal programs in flight share at most: half of the 50 MB of L2 of an H100 or H200."""


class Tile(NamedTuple):
    """How a launch is cut up."""

    block_m: int
    """Query rows of a program."""
    block_n: int
    """Keys of a step."""
    warps: int
    stages: int
    """Blocks of K and of V in shared memory at a time."""
    mask: str = "split"
    """Where some blocks need a mask: "split" gives these a loop of their own, "branch" has one loop that asks before
    each block (no second start of the pipeline, so good for short loops), "always" one loop that masks every block."""
    tma: bool = False
    """Inputs come by the tensor memory accelerator (Hopper and later) and not by pointers."""


class Device(NamedTuple):
    """What the choice of a tile depends on."""

    processors: int
    shared_bytes: int
    """Shared memory that one program may have."""
    tma: bool


def tiles(head_dim, causal, seq_len, all_heads, device):
    """The tile for a problem; `all_heads` is B * H.

    Small problems have fewer 128-row programs than processors: their rows are cut finer so that every processor works.
    Measured on an H200, fp16, best of 19 to 38 tiles per workload: docs/measurements/triton-flash-tiles-h200-2026-11-21.json.
    That search reuses one buffer. Against rotating inputs the paired protocol found, at B=8 H=16 S=512 D=64, 64 x 64 tiles 4%
    faster than the search's 128 x 64, so there the table follows the protocol.
    Up to 128 rows of D=64 it follows a sweep on an H100: docs/measurements/short-attention-h100-2026-11-25.jsonl.
    """
    if device.shared_bytes < 160 * 1024:  # compute capability 8.6, 8.9 and 12.x: 99 KiB
        return Tile(128, 64, 4, 2) if head_dim == 64 else Tile(64, 64, 4, 2)
    if device.shared_bytes < 200 * 1024:  # 8.0: no tensor memory accelerator
        return Tile(64, 64, 4, 3) if head_dim == 64 and seq_len <= 512 else Tile(128, 64, 4 if head_dim == 64 else 8, 3)
    small = triton.cdiv(seq_len, 128) * all_heads < device.processors
    if head_dim == 128:
        if seq_len <= 64 or small:
            return Tile(64, 64, 4, 3)
        return Tile(128, 128, 8, 3, "branch", tma=True) if causal else Tile(128, 128, 8, 3)
    if seq_len <= 128:
        return Tile(64, 64, 4, 3, "branch") if causal else Tile(64, 128, 4, 3)
    if small:
        return Tile(64, 128, 4, 3, "branch", tma=True) if causal else Tile(64, 128, 4, 3)
    if seq_len <= 512:
        return Tile(64, 64, 4, 3, "branch", tma=True) if causal else Tile(64, 64, 4, 3)
    return Tile(128, 64, 4, 3, "split", tma=causal)


@kernel(
    "attention",
    backend="triton",
    dtypes=("float16", "bfloat16"),
    needs=cuda(min_capability=8.0),
    limits={"head_dim": (64, 128)},
    space={
        "block_m": (16, 32, 64, 128), "block_n": (16, 32, 64, 128), "warps": (4, 8), "stages": (2, 3, 4),
        "mask": ("split", "branch", "always"), "tma": (False, True),
    },
)  # fmt: skip
def triton_flash(q, k, v, *, causal, scale, settings=None):
    """Flash attention forward in Triton, tiles from a table."""
    batch, heads, seq_len, head_dim = q.shape
    device = _device(q.device)
    if settings:
        return launch(q, k, v, causal, scale, fitting(Tile(**settings), head_dim, device))
    return launch(q, k, v, causal, scale, tiles(head_dim, causal, seq_len, batch * heads, device))


def fitting(tile, head_dim, device):
    """The tile, if a device can hold it and has what it asks for. Raises Unsupported."""
    if tile.tma and not device.tma:
        raise Unsupported("this device has no tensor memory accelerator")
    needed = 2 * head_dim * (tile.block_m + 2 * tile.stages * tile.block_n)
    if needed > device.shared_bytes:
        raise Unsupported(f"needs {needed} bytes of shared memory, this device has {device.shared_bytes}")
    return tile


def launch(q, k, v, causal, scale, tile):
    """Attention of q (B, H, S, D) and k, v (B, Hkv, S, D) with a given tile. Returns a new, contiguous (B, H, S, D)."""
    _check(q, k, v, scale)
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    batch, heads, seq_len, head_dim = q.shape
    group = heads // k.shape[1]
    rows = triton.cdiv(seq_len, tile.block_m)
    waves = _waves(heads, L2_SHARE * group // (2 * seq_len * head_dim * k.element_size())) if causal else 1
    grid = (heads // waves, rows, batch * waves) if causal else (rows, heads, batch)
    even_n = seq_len % tile.block_n == 0
    tma = tile.tma and all(_fits_descriptor(x) for x in (q, k, v))
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    with torch.cuda.device_of(q):  # Triton launches on the current device, which need not be the tensors'
        _attention[grid](
            _descriptor(q, tile.block_m) if tma else q,
            _descriptor(k, tile.block_n) if tma else k,
            _descriptor(v, tile.block_n) if tma else v,
            out,
            q.stride(),
            k.stride(),
            v.stride(),
            out.stride(),
            seq_len,
            group,
            waves,
            scale * LOG2_E,
            HEAD_DIM=head_dim,
            CAUSAL=causal,
            BLOCK_M=tile.block_m,
            BLOCK_N=tile.block_n,
            EVEN_M=seq_len % tile.block_m == 0,
            EVEN_N=even_n,
            MASK=tile.mask if causal or not even_n else "none",
            TMA=tma,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return out


def _check(q, k, v, scale):
    if k.shape != v.shape or q.shape[2:] != k.shape[2:] or q.shape[0] != k.shape[0] or q.shape[1] % k.shape[1]:
        raise Unsupported(f"q, k and v are {_shapes(q, k, v)}; needs (B, H, S, D) and twice (B, Hkv, S, D)")
    if q.shape[-1] not in (64, 128):
        raise Unsupported(f"head_dim is {q.shape[-1]}; this kernel does 64 and 128")
    if q.dtype not in (torch.float16, torch.bfloat16) or k.dtype != q.dtype or v.dtype != q.dtype:
        raise Unsupported(f"dtypes are {q.dtype}, {k.dtype}, {v.dtype}; this kernel does all float16 or all bfloat16")
    if q.shape[0] > 65_535:
        raise Unsupported(f"batch is {q.shape[0]}; the third size of a CUDA grid ends at 65535")
    if not scale > 0:
        raise Unsupported(f"scale is {scale}; it must be positive, for row maxima are taken before scaling")


def _shapes(*tensors):
    return ", ".join(str(tuple(x.shape)) for x in tensors)


@cache
def _device(device):
    if device.type != "cuda":  # Triton's interpreter works on the CPU, where any tile will do
        return Device(processors=132, shared_bytes=227 * 1024, tma=True)
    properties = torch.cuda.get_device_properties(device)
    return Device(properties.multi_processor_count, properties.shared_memory_per_block_optin, properties.major >= 9)


def _fits_descriptor(x):
    """A descriptor needs its base and its strides aligned to 16 bytes."""
    return x.data_ptr() % 16 == 0 and all(stride * x.element_size() % 16 == 0 for stride in x.stride()[:-1])


def _descriptor(x, rows):
    return TensorDescriptor.from_tensor(x, [1, 1, rows, x.shape[-1]])


@cache
def _waves(heads, at_once):
    """The fewest waves that `heads` divide into evenly, with at most `at_once` heads in each, or one."""
    return min(n for n in range(1, heads + 1) if heads % n == 0 and (heads // n <= at_once or n == heads))


# One compilation serves every length. It does not serve every stride, for 16-byte copies must be seen to be aligned,
# nor every group and waves: these are mostly 1, and then there is no division on the way to the first load.
@triton.jit(do_not_specialize=["seq_len"])
def _attention(
    q,
    k,
    v,
    out,
    q_strides,
    k_strides,
    v_strides,
    out_strides,
    seq_len,
    group,  # query heads of one key/value head
    waves,
    scale,  # times log2(e)
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    EVEN_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    MASK: tl.constexpr,
    TMA: tl.constexpr,
):
    """One tile of BLOCK_M rows of one head. MASK: "none" if no block needs one, else as in Tile."""
    if CAUSAL:
        # The last tile of a head sees the most keys, so it goes first: what runs at the end, when processors fall idle,
        # is light. Heads go in waves whose K and V stay in L2 together.
        wave = tl.program_id(2) % waves
        b = tl.program_id(2) // waves
        h = wave * tl.num_programs(0) + tl.program_id(0)
        first_row = (tl.num_programs(1) - 1 - tl.program_id(1)) * BLOCK_M
    else:
        b = tl.program_id(2)
        h = tl.program_id(1)
        first_row = tl.program_id(0) * BLOCK_M
    q_tile = _rows(q, q_strides, b, h, first_row, seq_len, BLOCK_M, HEAD_DIM, EVEN_M, TMA)

    if CAUSAL:  # no row of the tile may see keys from `end` on; every row sees all keys before `whole`
        whole = first_row // BLOCK_N * BLOCK_N
        end = tl.minimum(first_row + BLOCK_M, seq_len)
    else:
        whole = seq_len // BLOCK_N * BLOCK_N
        end = seq_len

    acc = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    for MASKED in tl.static_range(0 if MASK == "none" or MASK == "split" else 1, 1 if MASK == "none" else 2):
        first = whole if MASKED and MASK == "split" else 0
        last = end if MASKED else whole
        # The ragged end is one block, and so is the diagonal under a wide step: a pipeline gains nothing there, and
        # makes ptxas serialise the wgmma of both loops (its warning C7515).
        for start in tl.range(
            first,
            last,
            BLOCK_N,
            num_stages=1 if MASKED and MASK == "split" and (BLOCK_M < BLOCK_N or not CAUSAL) else None,
        ):
            k_block = _rows(k, k_strides, b, h // group, start, seq_len, BLOCK_N, HEAD_DIM, EVEN_N or not MASKED, TMA)
            scores = tl.dot(q_tile, tl.trans(k_block))
            if MASK == "branch":
                if start >= whole:
                    scores = _masked(scores, first_row, start, seq_len, CAUSAL, BLOCK_M, BLOCK_N)
            elif MASKED:
                scores = _masked(scores, first_row, start, seq_len, CAUSAL, BLOCK_M, BLOCK_N)
            # Every row sees key 0, which is in its first block: no maximum is -inf, so none is taken from -inf.
            new_max = tl.maximum(row_max, tl.max(scores, 1) * scale)
            weights = tl.math.exp2(scores * scale - new_max[:, None])
            shrink = tl.math.exp2(row_max - new_max)
            row_sum = row_sum * shrink + tl.sum(weights, 1)
            row_max = new_max
            v_block = _rows(v, v_strides, b, h // group, start, seq_len, BLOCK_N, HEAD_DIM, EVEN_N or not MASKED, TMA)
            acc = tl.dot(weights.to(v_block.dtype), v_block, acc * shrink[:, None])

    result = (acc * (1.0 / row_sum)[:, None]).to(out.dtype.element_ty)
    pointers = _pointers(out, out_strides, b, h, first_row, BLOCK_M, HEAD_DIM)
    if EVEN_M:
        tl.store(pointers, result)
    else:
        tl.store(pointers, result, mask=(first_row + tl.arange(0, BLOCK_M) < seq_len)[:, None])


@triton.jit
def _rows(
    x,
    strides,
    b,
    h,
    row,
    seq_len,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    INSIDE: tl.constexpr,
    TMA: tl.constexpr,
):
    """Rows `row` ... `row + ROWS - 1` of one head; those past the end are 0. INSIDE promises that there are none."""
    if TMA:
        block = x.load([b, h, row, 0]).reshape(ROWS, HEAD_DIM)
    elif INSIDE:
        block = tl.load(_pointers(x, strides, b, h, row, ROWS, HEAD_DIM))
    else:
        inside = row + tl.arange(0, ROWS) < seq_len
        block = tl.load(_pointers(x, strides, b, h, row, ROWS, HEAD_DIM), mask=inside[:, None], other=0.0)
    return block


@triton.jit
def _pointers(x, strides, b, h, row, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Pointers to rows of one head. Offsets are in 64 bits where they may not fit 32."""
    start = tl.cast(b, tl.int64) * strides[0] + tl.cast(h, tl.int64) * strides[1] + tl.cast(row, tl.int64) * strides[2]
    return x + start + tl.arange(0, ROWS)[:, None] * strides[2] + tl.arange(0, HEAD_DIM)[None, :]


@triton.jit
def _masked(scores, first_row, first_key, seq_len, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Scores with -inf where a row may not see a key."""
    keys = first_key + tl.arange(0, BLOCK_N)
    if CAUSAL:  # a row of the sequence comes before the ragged end, which is therefore masked too
        visible = (first_row + tl.arange(0, BLOCK_M))[:, None] >= keys[None, :]
    else:
        visible = (keys < seq_len)[None, :]
    return tl.where(visible, scores, float("-inf"))
