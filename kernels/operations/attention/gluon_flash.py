"""Flash attention forward for Hopper in Gluon: a warp loads tiles by TMA, two or three groups of four warps multiply.

A program stays on its processor and takes tiles of 128 or 192 query rows in an order known beforehand. A group has two
products under way, scores of the next block of keys and weights times values of this one, and computes the softmax of
the next block while the second runs. Softmax is in base 2 and float32; the scale is applied to float32 scores. Only the
last block of keys, which goes first, can need a mask.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.catalog import Unsupported, cuda, kernel

LOG2_E = 1.4426950408889634
L2_SHARE = 24 * 2**20  # bytes of K and V that programs in flight share at most: half of an H100's or H200's L2
ROWS = gl.constexpr(64)  # of queries for a warp group: what one wgmma takes
KEYS = gl.constexpr(128)  # in a block
Q_BUFFERS = gl.constexpr(2)  # tiles of queries in shared memory: one in use, one on its way
# A maximum may grow by so many powers of two before what is summed is rescaled. Float16 holds weights of 2^8.
LAZY = gl.constexpr(8.0)


class Tile(NamedTuple):
    """How a launch is cut up."""

    groups: int  # that multiply, 64 rows each
    slots: int  # for blocks of K or V in shared memory
    registers: int  # of a thread that multiplies
    at_start: int  # registers of every thread, before warps are told apart: 65,536 over all threads


def tiles(head_dim, causal, seq_len, all_heads, processors):
    """The tile for a problem; `all_heads` is B * H. Of three groups each has too few registers for head dim 128.

    Measured on an H200, float16, B=1 H=96 S=4096, ms (docs/measurements/gluon-flash-h200-2026-11-22.json): D=64,
    three groups in turns 0.750, without turns 0.776, two 0.838 (an earlier version); D=128, two without turns 1.162, in
    turns 1.174. At B=4 H=16 S=512 D=64 three groups take 0.0193, two 0.0152: 192 tiles are few for 132 processors.
    """
    if head_dim == 64 and not causal and triton.cdiv(seq_len, 192) * all_heads >= 4 * processors:
        return Tile(groups=3, slots=8, registers=160, at_start=128)
    return Tile(groups=2, slots=5 if head_dim == 128 else 8, registers=240, at_start=168)


def heads_at_once(kv_heads, seq_len, head_dim, causal):
    """Key/value heads whose tiles follow each other, longest first; `kv_heads` is B * Hkv.

    Where all tiles are of one length, one head at a time shares most of K and V. Else the end of each batch of heads
    leaves processors idle, which few batches do not make up for, and programs that each read K and V of their own wait
    for memory. Measured, causal, D=128, TFLOP/s: B=8 H=32 S=2048 with 32, 64, 128, 256 at once 564, 543, 496, 465; B=16
    H=96 S=4096 with 12, 24, 48, 96 at once 596, 590, 564, 545; B=4 H=16 S=2048 with 64 and 32 at once 496 and 478.
    """
    if not causal:
        return 1
    in_l2 = max(1, L2_SHARE // (4 * seq_len * head_dim))
    if kv_heads >= 16 * in_l2:
        return in_l2
    return max(32, in_l2) if kv_heads > 64 else kv_heads


@kernel(
    "attention",
    backend="gluon",
    dtypes=("float16", "bfloat16"),
    needs=cuda(architecture=9.0, triton=(">=3.6", "<3.7")),
    limits={"head_dim": (64, 128)},
)
def gluon_flash(q, k, v, *, causal, scale):
    """Flash attention forward in Gluon for Hopper: TMA, wgmma and warps with roles of their own."""
    _check(q, k, v, scale)
    batch, heads, seq_len, head_dim = q.shape
    tile = tiles(head_dim, causal, seq_len, batch * heads, _processors(q.device))
    return launch(q, k, v, causal, scale, tile, heads_at_once(batch * k.shape[1], seq_len, head_dim, causal))


def launch(q, k, v, causal, scale, tile, at_once):
    """Attention of q (B, H, S, D) and k, v (B, Hkv, S, D) with a given tile. Returns a new, contiguous (B, H, S, D)."""
    batch, heads, seq_len, head_dim = q.shape
    group, rows = heads // k.shape[1], triton.cdiv(seq_len, ROWS.value * tile.groups)
    total = rows * batch * heads
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    with torch.cuda.device_of(q):  # Triton launches on the current device, which need not be the tensors'
        _attention[(min(total, _processors(q.device)),)](
            _descriptor(q, ROWS.value), _descriptor(k, KEYS.value), _descriptor(v, KEYS.value),
            _descriptor(out, ROWS.value), total, rows, heads, batch * heads, group, group * at_once, seq_len,
            scale * LOG2_E, HEAD_DIM=head_dim, CAUSAL=causal, RAGGED=not causal and seq_len % KEYS.value != 0,
            SNAKE=causal and group * at_once == batch * heads, GROUPS=tile.groups, SLOTS=tile.slots,
            REGISTERS=tile.registers, num_warps=4, maxnreg=tile.at_start,
        )  # fmt: skip
    return out


def _check(q, k, v, scale):
    if k.shape != v.shape or q.shape[2:] != k.shape[2:] or q.shape[0] != k.shape[0] or q.shape[1] % k.shape[1]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise Unsupported(f"q, k and v are {shapes}; needs (B, H, S, D) and twice (B, Hkv, S, D)")
    if (
        q.shape[-1] not in (64, 128)
        or q.dtype not in (torch.float16, torch.bfloat16)
        or {k.dtype, v.dtype} != {q.dtype}
    ):
        raise Unsupported("this kernel does head_dim 64 and 128, all in float16 or all in bfloat16")
    if not 0 < scale < 2**16:
        raise Unsupported(f"scale is {scale}; it must be positive, for row maxima are taken before scaling")


@cache
def _processors(device):
    if torch.cuda.get_device_capability(device) != (9, 0):
        raise Unsupported("this kernel is for compute capability 9.0 and no other")
    return torch.cuda.get_device_properties(device).multi_processor_count


def _descriptor(x, rows):
    aligned = x.data_ptr() % 16 == 0 and all(stride * x.element_size() % 16 == 0 for stride in x.stride()[:-1])
    x = x if aligned and x.stride(-1) == 1 else x.contiguous()
    return TensorDescriptor.from_tensor(x, [1, 1, rows, x.shape[-1]], LAYOUT)


LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)


@gluon.jit
def _count(total, SNAKE: gl.constexpr):
    """How many tiles this program does."""
    full = total // gl.num_programs(0)
    place = gl.program_id(0)
    if SNAKE:
        place = gl.where(full % 2 == 0, place, gl.num_programs(0) - 1 - place)
    return full + (place < total - full * gl.num_programs(0)).to(gl.int32)


@gluon.jit
def _tile(step, rows, heads, all_heads, at_once, SNAKE: gl.constexpr):
    """Batch, head and row tile of this program's step-th tile. Tiles of `at_once` heads go down from the longest; SNAKE
    deals them out forwards and backwards in turns, so that no program gets the longer one each time."""
    place = gl.program_id(0)
    if SNAKE:
        place = gl.where(step % 2 == 0, place, gl.num_programs(0) - 1 - place)
    index = step * gl.num_programs(0) + place
    first = index // (at_once * rows) * at_once
    index -= first * rows
    wide = gl.minimum(at_once, all_heads - first)
    down = index // wide
    head = first + index - down * wide
    b = head // heads
    return b, head - b * heads, rows - 1 - down


@gluon.jit
def _blocks(tile, seq_len, CAUSAL: gl.constexpr, GROUPS: gl.constexpr):
    """How many blocks of keys a tile sees."""
    end = seq_len
    if CAUSAL:
        end = gl.minimum((tile + 1) * GROUPS * ROWS, seq_len)
    return gl.cdiv(end, KEYS)


@gluon.jit
def _next(slot, phase, SLOTS: gl.constexpr):
    wraps = slot + 1 == SLOTS
    return gl.where(wraps, 0, slot + 1), gl.where(wraps, phase ^ 1, phase)


@gluon.jit
def _load(x, b, h, row, memory, full, free, slot, phase, SLOTS: gl.constexpr):
    """A block of K or V into the next slot, as soon as that is free."""
    mbarrier.wait(free.index(slot), phase)
    mbarrier.expect(full.index(slot), x.block_type.nbytes)
    tma.async_copy_global_to_shared(x, [b, h, row, 0], full.index(slot), memory.index(slot))
    return _next(slot, phase, SLOTS)


@gluon.jit
def _loader(
    q, k, v, buffers, work, CAUSAL: gl.constexpr, SNAKE: gl.constexpr, GROUPS: gl.constexpr, SLOTS: gl.constexpr
):
    q_memory, memory, q_full, q_free, full, free, _ = buffers
    total, rows, heads, all_heads, group, at_once, seq_len = work
    slot = 0
    phase = 1  # a wait for the phase before the first returns at once
    for step in range(_count(total, SNAKE)):
        b, h, tile = _tile(step, rows, heads, all_heads, at_once, SNAKE)
        buffer = step % Q_BUFFERS
        mbarrier.wait(q_free.index(buffer), (step // Q_BUFFERS & 1) ^ 1)
        mbarrier.expect(q_full.index(buffer), GROUPS * q.block_type.nbytes)
        for part in gl.static_range(GROUPS):
            into = q_memory.index(buffer * GROUPS + part)
            tma.async_copy_global_to_shared(q, [b, h, (tile * GROUPS + part) * ROWS, 0], q_full.index(buffer), into)
        # In the order of use: K of the last block, K of the one before, V of the last, K, V, ..., V of the first.
        last = _blocks(tile, seq_len, CAUSAL, GROUPS) - 1
        slot, phase = _load(k, b, h // group, last * KEYS, memory, full, free, slot, phase, SLOTS)
        for done in range(last):
            row = (last - done) * KEYS
            slot, phase = _load(k, b, h // group, row - KEYS, memory, full, free, slot, phase, SLOTS)
            slot, phase = _load(v, b, h // group, row, memory, full, free, slot, phase, SLOTS)
        slot, phase = _load(v, b, h // group, 0, memory, full, free, slot, phase, SLOTS)


@gluon.jit
def _exp2(x):
    """Results below 2^-126 are 0: gl.exp2 would spend two more instructions on them."""
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def _halved(p, dtype: gl.constexpr, OPERAND: gl.constexpr):
    """p in 16 bits, as an operand. LLVM would move a plain conversion to the top of the loop, before the products."""
    if dtype == gl.float16:
        p = gl.inline_asm_elementwise("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [p], gl.float16, False, 2)
    else:
        p = gl.inline_asm_elementwise("cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [p], gl.bfloat16, False, 2)
    return gl.convert_layout(p, OPERAND, assert_trivial=True)


@gluon.jit
def _sums(p):
    """Row sums of what a thread holds: (rows, 8), the last axis over four threads until the tile is done."""
    return gl.sum(gl.reshape(p, [ROWS, KEYS // 8, 8]), 1)


@gluon.constexpr_function
def _scaling(n):
    """Multiplies n numbers of a thread, of two rows, by their rows' factors, unless these are 1 in all of the warp."""
    lines = ["{", ".reg .pred %any;", f"setp.neu.f32 %any, ${2 * n}, 0f3F800000;"]
    lines += [f"setp.neu.or.f32 %any, ${2 * n + 2}, 0f3F800000, %any;", "vote.sync.any.pred %any, %any, 0xffffffff;"]
    lines += ["@!%any bra.uni DONE;", *(f"mul.f32 ${i}, ${i}, ${2 * n + i};" for i in range(n)), "DONE:", "}"]
    return "\n".join(lines)


@gluon.constexpr_function
def _scaling_operands(n):
    return ",".join(["=f"] * n + [str(i) for i in range(n)] + ["f"] * n)


@gluon.jit
def _scaled(o, factor, N: gl.constexpr):
    factor = gl.convert_layout(factor, gl.SliceLayout(1, o.type.layout), assert_trivial=True)
    o, factor = gl.broadcast(o, factor[:, None])
    return gl.inline_asm_elementwise(_scaling(N), _scaling_operands(N), [o, factor], gl.float32, False, N)


@gluon.jit
def _masked(s, row, key, seq_len, always, CAUSAL: gl.constexpr):
    """Scores with -inf where a row may not see a key. No row has all of its first block masked: no maximum is -inf."""
    if always:
        keys = key + gl.arange(0, KEYS, gl.SliceLayout(0, s.type.layout))
        if CAUSAL:  # a row of the sequence comes before the ragged end, which is therefore masked too
            visible = (row + gl.arange(0, ROWS, gl.SliceLayout(1, s.type.layout)))[:, None] >= keys[None, :]
        else:
            visible = (keys < seq_len)[None, :]
        s = gl.where(visible, s, float("-inf"))
    return s


@gluon.jit
def _multiplier(
    out, buffers, work, scale, HEAD_DIM: gl.constexpr, CAUSAL: gl.constexpr, RAGGED: gl.constexpr,
    SNAKE: gl.constexpr, GROUPS: gl.constexpr, SLOTS: gl.constexpr, ME: gl.constexpr,
):  # fmt: skip
    q_memory, memory, q_full, q_free, full, free, turns = buffers
    total, rows, heads, all_heads, _, at_once, seq_len = work
    dtype: gl.constexpr = out.dtype
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    OUTPUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUTPUT, k_width=2)
    EARLY: gl.constexpr = GROUPS == 2  # weights become 16 bits before the last product is waited for: 16 registers more

    # Always true, which ptxas does not know: it moves what is in a branch neither before nor behind the products around
    # it. Elsewhere it waits for a product first and does the softmax after, or the mask before.
    always = total > 0
    slot, phase, turn = 0, 0, 0
    p = gl.zeros([ROWS, KEYS], gl.float32, SCORES)
    for step in range(_count(total, SNAKE)):
        b, h, tile = _tile(step, rows, heads, all_heads, at_once, SNAKE)
        last = _blocks(tile, seq_len, CAUSAL, GROUPS) - 1
        row = (tile * GROUPS + ME) * ROWS
        buffer = step % Q_BUFFERS
        q_tile = q_memory.index(buffer * GROUPS + ME)
        q = q_tile.reshape([ROWS, HEAD_DIM])
        mbarrier.wait(q_full.index(buffer), step // Q_BUFFERS & 1)

        # `p` only gives its registers, which are free by then, to the scores: zeros would have to be written each time.
        mbarrier.wait(full.index(slot), phase)
        k = memory.index(slot).reshape([KEYS, HEAD_DIM]).permute((1, 0))
        s = warpgroup_mma_wait(0, deps=(warpgroup_mma(q, k, p, use_acc=False, is_async=True),))
        mbarrier.arrive(free.index(slot), count=1)
        slot, phase = _next(slot, phase, SLOTS)
        if CAUSAL or RAGGED:
            s = _masked(s, row, last * KEYS, seq_len, always, CAUSAL)
        top = gl.max(s, 1)
        p = _exp2(s * scale - (top * scale)[:, None])
        sums = _sums(p)
        weights = _halved(p, dtype, WEIGHTS)
        o = gl.zeros([ROWS, HEAD_DIM], gl.float32, OUTPUT)
        tma.store_wait(0)  # of the tile before: its buffer may be filled again
        mbarrier.arrive(q_free.index((step + 1) % Q_BUFFERS), count=1, pred=step > 0)

        # Nothing is under way where the loop turns, or ptxas would serialise all products (its warning C7514).
        for _ in range(last):
            mbarrier.wait(full.index(slot), phase)
            if GROUPS == 3:
                mbarrier.wait(turns.index(ME), turn)
                turn ^= 1
            k = memory.index(slot).reshape([KEYS, HEAD_DIM]).permute((1, 0))
            coming = warpgroup_mma(q, k, p, use_acc=False, is_async=True)
            k_slot = slot
            slot, phase = _next(slot, phase, SLOTS)
            mbarrier.wait(full.index(slot), phase)
            adding = warpgroup_mma(weights, memory.index(slot).reshape([KEYS, HEAD_DIM]), o, is_async=True)
            if GROUPS == 3:
                mbarrier.arrive(turns.index((ME + 1) % GROUPS), count=1)
            s = warpgroup_mma_wait(1, deps=(coming,))
            mbarrier.arrive(free.index(k_slot), count=1)
            p = s
            shrink = top
            if always:
                new_top = gl.maximum(top, gl.max(s, 1))
                new_top = gl.where((new_top - top) * scale > LAZY, new_top, top)
                shrink = _exp2((top - new_top) * scale)
                top = new_top
                p = _exp2(s * scale - (top * scale)[:, None])
                factor = gl.convert_layout(shrink, gl.SliceLayout(1, sums.type.layout), assert_trivial=True)
                sums = sums * factor[:, None] + _sums(p)
                if EARLY:
                    weights = _halved(p, dtype, WEIGHTS)
            o = warpgroup_mma_wait(0, deps=(adding,))
            mbarrier.arrive(free.index(slot), count=1)
            slot, phase = _next(slot, phase, SLOTS)
            if always:
                o = _scaled(o, shrink, HEAD_DIM // 2)
            if not EARLY:
                weights = _halved(p, dtype, WEIGHTS)

        mbarrier.wait(full.index(slot), phase)
        adding = warpgroup_mma(weights, memory.index(slot).reshape([KEYS, HEAD_DIM]), o, is_async=True)
        inverse = gl.convert_layout(1.0 / gl.sum(sums, 1), gl.SliceLayout(1, OUTPUT))
        o = warpgroup_mma_wait(0, deps=(adding,))
        mbarrier.arrive(free.index(slot), count=1)
        slot, phase = _next(slot, phase, SLOTS)
        q.store((o * inverse[:, None]).to(dtype))  # no product needs the queries any more
        fence_async_shared()
        tma.async_copy_shared_to_global(out, [b, h, row, 0], q_tile)
    tma.store_wait(0)


@gluon.jit
def _barriers(N: gl.constexpr, COUNT: gl.constexpr):
    barriers = gl.allocate_shared_memory(gl.int64, [N, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(N):
        mbarrier.init(barriers.index(i), count=COUNT)
    return barriers


# One compilation serves every size.
@gluon.jit(do_not_specialize=["total", "rows", "heads", "all_heads", "group", "at_once", "seq_len"])
def _attention(
    q, k, v, out, total, rows, heads, all_heads, group, at_once, seq_len, scale,  # scale: times log2(e)
    HEAD_DIM: gl.constexpr, CAUSAL: gl.constexpr, RAGGED: gl.constexpr, SNAKE: gl.constexpr,
    GROUPS: gl.constexpr, SLOTS: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    q_memory = gl.allocate_shared_memory(q.dtype, [Q_BUFFERS * GROUPS, 1, 1, ROWS, HEAD_DIM], q.layout)
    memory = gl.allocate_shared_memory(q.dtype, [SLOTS, 1, 1, KEYS, HEAD_DIM], k.layout)
    q_full = _barriers(Q_BUFFERS, 1)
    q_free = _barriers(Q_BUFFERS, GROUPS)
    full = _barriers(SLOTS, 1)
    free = _barriers(SLOTS, GROUPS)
    turns = _barriers(GROUPS, 1)
    fence_async_shared()
    mbarrier.arrive(turns.index(0), count=1)

    buffers = (q_memory, memory, q_full, q_free, full, free, turns)
    work = (total, rows, heads, all_heads, group, at_once, seq_len)
    # Written out, for Gluon makes the compile-time numbers of a list that is put together into run-time ones.
    if GROUPS == 2:
        gl.warp_specialize([
            (_multiplier, (out, buffers, work, scale, HEAD_DIM, CAUSAL, RAGGED, SNAKE, GROUPS, SLOTS, 0)),
            (_multiplier, (out, buffers, work, scale, HEAD_DIM, CAUSAL, RAGGED, SNAKE, GROUPS, SLOTS, 1)),
            (_loader, (q, k, v, buffers, work, CAUSAL, SNAKE, GROUPS, SLOTS)),
        ], [4, 1], [REGISTERS, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (_multiplier, (out, buffers, work, scale, HEAD_DIM, CAUSAL, RAGGED, SNAKE, GROUPS, SLOTS, 0)),
            (_multiplier, (out, buffers, work, scale, HEAD_DIM, CAUSAL, RAGGED, SNAKE, GROUPS, SLOTS, 1)),
            (_multiplier, (out, buffers, work, scale, HEAD_DIM, CAUSAL, RAGGED, SNAKE, GROUPS, SLOTS, 2)),
            (_loader, (q, k, v, buffers, work, CAUSAL, SNAKE, GROUPS, SLOTS)),
        ], [4, 4, 1], [REGISTERS, REGISTERS, 24])  # fmt: skip
