"""Flash attention forward for Hopper in Gluon: a warp loads tiles by TMA, two or three groups of four warps multiply.

Causal tiles go in pairs of equal length.

A program stays on its processor and takes tiles of 128 or 192 query rows in an order known beforehand. A group has two
products under way, scores of the next block of keys and weights times values of this one, and computes the softmax of
the next block while the second runs. Softmax is in base 2 and float32; the scale is applied to float32 scores. Only the
last block of keys that a group's rows see, which goes first, can need a mask.
"""

from math import gcd
from typing import NamedTuple

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.catalog import Unsupported, cuda, kernel

LOG2_E = 1.4426950408889634
ROWS = gl.constexpr(64)  # of queries for a warp group: what one wgmma takes
LAZY = gl.constexpr(8.0)  # powers of two by which a maximum may grow before sums are rescaled; float16 holds 2^8


class Tile(NamedTuple):
    """How a launch is cut up."""

    groups: int  # that multiply, 64 rows each
    keys: int  # in a block
    slots: int  # for blocks of K or V in shared memory
    q_buffers: int  # for tiles of queries: one in use, one on its way where there is room


def tiles(head_dim, causal, seq_len, all_heads, processors):
    """The tile for a problem; `all_heads` is B * H. Of three groups each has too few registers for head dim 128."""
    if head_dim > 128:
        return Tile(groups=2, keys=64, slots=5, q_buffers=1)
    if head_dim > 64:
        return Tile(groups=2, keys=128, slots=5, q_buffers=2)
    long = not causal or seq_len >= (2048 if all_heads <= 256 else 3072)
    many = triton.cdiv(seq_len, 192) * all_heads >= 4 * processors
    return Tile(groups=3 if long and many else 2, keys=128, slots=8, q_buffers=2)


def heads_in_pairs(rows, all_heads, processors):
    """How many causal heads are done as pairs of a short and a long tile; the others go down from their longest tiles.

    Pairs are of equal length: programs stay together, and K and V of the few heads in use stay in L2. Pairs fill whole
    rounds of all programs and leave a round's tiles for an even end. Of odd rows the first tile is done twice.
    """
    if rows % 2 == 1 and rows < 16:
        return 0
    pairs = (rows + 1) // 2
    step = processors // gcd(processors, pairs)
    return max(0, all_heads - triton.cdiv(processors, pairs)) // step * step


@kernel(
    "attention", backend="gluon", dtypes=("float16", "bfloat16"),
    needs=cuda(architecture=9.0, triton=(">=3.6", "<3.7")), limits={"head_dim": (32, 64, 80, 96, 128, 192, 256)},
)  # fmt: skip
def gluon_flash(q, k, v, *, causal, scale):
    """Flash attention in Gluon for Hopper: TMA, wgmma, specialised warps, causal tiles in pairs of equal length."""
    _check(q, k, v, scale)
    batch, heads, seq_len, head_dim = q.shape
    processors = torch.cuda.get_device_properties(q.device).multi_processor_count
    return launch(q, k, v, causal, scale, tiles(head_dim, causal, seq_len, batch * heads, processors), processors)


def launch(q, k, v, causal, scale, tile, processors):
    """Attention of q (B, H, S, D) and k, v (B, Hkv, S, D) with a given tile. Returns a new, contiguous (B, H, S, D)."""
    batch, heads, seq_len, head_dim = q.shape
    rows = triton.cdiv(seq_len, ROWS.value * tile.groups)
    half = _width(head_dim) // 2
    depth = max(64, half + triton.next_power_of_2(max(16, head_dim - half)))  # columns of Q and K that are multiplied
    registers, at_start = (160, 128) if tile.groups == 3 else (240, 168)  # of a multiplying thread; of all, at first
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    with torch.cuda.device_of(q):  # Triton launches on the current device, which need not be the tensors'
        _attention[(min(rows * batch * heads, processors),)](
            _descriptor(q, ROWS.value), _descriptor(k, tile.keys), _descriptor(v, tile.keys),
            _descriptor(out, ROWS.value), rows, heads, batch * heads,
            heads_in_pairs(rows, batch * heads, processors) if causal else 0, heads // k.shape[1], seq_len,
            scale * LOG2_E, DEPTH=depth, CAUSAL=causal, RAGGED=not causal and seq_len % tile.keys != 0,
            GROUPS=tile.groups, SLOTS=tile.slots, Q_BUFFERS=tile.q_buffers, REGISTERS=registers,
            num_warps=4, maxnreg=at_start,
        )  # fmt: skip
    return out


def _width(head_dim):
    """Columns of a tile in shared memory. TMA fills those beyond the head dim with zeros and does not store them."""
    return max(64, triton.next_power_of_2(head_dim))


def _check(q, k, v, scale):
    if k.shape != v.shape or q.shape[2:] != k.shape[2:] or q.shape[0] != k.shape[0] or q.shape[1] % k.shape[1]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise Unsupported(f"q, k and v are {shapes}; needs (B, H, S, D) and twice (B, Hkv, S, D)")
    if q.dtype not in (torch.float16, torch.bfloat16) or {k.dtype, v.dtype} != {q.dtype} or q.shape[3] > 256:
        raise Unsupported("this kernel does head_dim up to 256, all in float16 or all in bfloat16")
    if not 0 < scale < 2**16:
        raise Unsupported(f"scale is {scale}; it must be positive, for row maxima are taken before scaling")


def _descriptor(x, rows):
    aligned = x.data_ptr() % 16 == 0 and all(stride * x.element_size() % 16 == 0 for stride in x.stride()[:-1])
    x = x if aligned and x.stride(-1) == 1 else x.contiguous()
    return TensorDescriptor.from_tensor(x, [1, 1, rows, _width(x.shape[-1])], LAYOUT)


LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)


@gluon.jit
def _count(work, CAUSAL: gl.constexpr):
    """How many tiles this program does."""
    rows, _, all_heads, paired, _, _ = work
    left = (all_heads - paired) * rows
    turns = left // gl.num_programs(0)
    place = gl.program_id(0)
    place = gl.where(turns % 2 == 0, place, gl.num_programs(0) - 1 - place) if CAUSAL else place
    turns += (place < left - turns * gl.num_programs(0)).to(gl.int32)
    return turns + 2 * (paired * ((rows + 1) // 2) // gl.num_programs(0))


@gluon.jit
def _tile(step, work, CAUSAL: gl.constexpr):
    """Batch, head and row tile of this program's step-th tile: one head after the other, or, where causal, some heads
    in pairs, then the others' tiles from the longest down, dealt out forwards and backwards in turns."""
    rows, heads, all_heads, paired, _, _ = work
    place = gl.program_id(0)
    if CAUSAL:
        pairs = (rows + 1) // 2  # of a head; where rows are odd, the longest tile's partner is tile 0 once more
        steps = 2 * (paired * pairs // gl.num_programs(0))
        if step < steps:
            index = step // 2 * gl.num_programs(0) + place
            head = index // pairs
            short = index - head * pairs
            tile = gl.where(step % 2 == 1, rows - 1 - short, gl.maximum(short - rows % 2, 0))
        else:
            turn = step - steps
            index = turn * gl.num_programs(0) + gl.where(turn % 2 == 0, place, gl.num_programs(0) - 1 - place)
            down = index // (all_heads - paired)
            head = paired + index - down * (all_heads - paired)
            tile = rows - 1 - down
    else:
        index = step * gl.num_programs(0) + place
        head = index // rows
        tile = index - head * rows
    b = head // heads
    return b, head - b * heads, tile


@gluon.jit
def _next(slot, phase, memory):
    wraps = slot + 1 == memory.shape[0]
    return gl.where(wraps, 0, slot + 1), gl.where(wraps, phase ^ 1, phase)


@gluon.jit
def _load(x, b, h, row, memory, full, free, slot, phase):
    """A block of K or V into the next slot, as soon as that is free."""
    mbarrier.wait(free.index(slot), phase)
    mbarrier.expect(full.index(slot), x.block_type.nbytes)
    tma.async_copy_global_to_shared(x, [b, h, row, 0], full.index(slot), memory.index(slot))
    return _next(slot, phase, memory)


@gluon.jit
def _loader(q, k, v, buffers, work, CAUSAL: gl.constexpr):
    q_memory, memory, q_full, q_free, full, free, _ = buffers
    _, _, _, _, group, seq_len = work
    KEYS: gl.constexpr = memory.shape[3]
    Q_BUFFERS: gl.constexpr = q_full.shape[0]
    GROUPS: gl.constexpr = q_memory.shape[0] // Q_BUFFERS
    slot, phase = 0, 1  # a wait for the phase before the first returns at once
    for step in range(_count(work, CAUSAL)):
        b, h, tile = _tile(step, work, CAUSAL)
        buffer = step % Q_BUFFERS
        mbarrier.wait(q_free.index(buffer), (step // Q_BUFFERS & 1) ^ 1)
        mbarrier.expect(q_full.index(buffer), GROUPS * q.block_type.nbytes)
        for part in gl.static_range(GROUPS):
            at = [b, h, (tile * GROUPS + part) * ROWS, 0]
            tma.async_copy_global_to_shared(q, at, q_full.index(buffer), q_memory.index(buffer * GROUPS + part))
        # In the order of use: K of the last block, K of the one before, V of the last, K, V, ..., V of the first.
        last = gl.cdiv(gl.minimum((tile + 1) * GROUPS * ROWS, seq_len) if CAUSAL else seq_len, KEYS) - 1
        slot, phase = _load(k, b, h // group, last * KEYS, memory, full, free, slot, phase)
        for done in range(last):
            row = (last - done) * KEYS
            slot, phase = _load(k, b, h // group, row - KEYS, memory, full, free, slot, phase)
            slot, phase = _load(v, b, h // group, row, memory, full, free, slot, phase)
        slot, phase = _load(v, b, h // group, 0, memory, full, free, slot, phase)


@gluon.jit
def _scores(q, k, p, DEPTH: gl.constexpr):
    """Starts q k^T over DEPTH columns; the rest are zeros. `p` only gives registers: zeros would have to be written."""
    if q.shape[1] == DEPTH:
        s = hopper.warpgroup_mma(q, k, p, use_acc=False, is_async=True)
    else:
        HALF: gl.constexpr = q.shape[1] // 2
        s = hopper.warpgroup_mma(q.slice(0, HALF, 1), k.slice(0, HALF, 0), p, use_acc=False, is_async=True)
        s = hopper.warpgroup_mma(q.slice(HALF, DEPTH - HALF, 1), k.slice(HALF, DEPTH - HALF, 0), s, is_async=True)
    return s


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


@gluon.constexpr_function
def _scaling(n):
    """Code and operands: n numbers of a thread, of two rows, times their rows' factors, if one in the warp is not 1."""
    lines = ["{", ".reg .pred %any;", f"setp.neu.f32 %any, ${2 * n}, 0f3F800000;"]
    lines += [f"setp.neu.or.f32 %any, ${2 * n + 2}, 0f3F800000, %any;", "vote.sync.any.pred %any, %any, 0xffffffff;"]
    lines += ["@!%any bra.uni DONE;", *(f"mul.f32 ${i}, ${i}, ${2 * n + i};" for i in range(n)), "DONE:", "}"]
    return "\n".join(lines), ",".join(["=f"] * n + [str(i) for i in range(n)] + ["f"] * n)


@gluon.jit
def _scaled(o, factor, N: gl.constexpr):
    factor = gl.convert_layout(factor, gl.SliceLayout(1, o.type.layout), assert_trivial=True)
    o, factor = gl.broadcast(o, factor[:, None])
    return gl.inline_asm_elementwise(_scaling(N)[0], _scaling(N)[1], [o, factor], gl.float32, False, N)


@gluon.jit
def _multiplier(
    out, buffers, work, scale, DEPTH: gl.constexpr, CAUSAL: gl.constexpr, RAGGED: gl.constexpr, ME: gl.constexpr
):  # fmt: skip
    q_memory, memory, q_full, q_free, full, free, turns = buffers
    rows, _, _, _, _, seq_len = work
    KEYS: gl.constexpr = memory.shape[3]
    HEAD_DIM: gl.constexpr = memory.shape[4]
    Q_BUFFERS: gl.constexpr = q_full.shape[0]
    GROUPS: gl.constexpr = q_memory.shape[0] // Q_BUFFERS
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    OUTPUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUTPUT, k_width=2)
    UNEVEN: gl.constexpr = CAUSAL and (GROUPS * ROWS != KEYS)  # some groups do not see the tile's last block
    AHEAD: gl.constexpr = CAUSAL or DEPTH < 128  # the next tile's divisions go under the last product, if that pays
    EARLY: gl.constexpr = GROUPS == 2  # weights become 16 bits before the last product is waited for: 16 registers more
    # Always true, which ptxas does not know: it moves what is in a branch neither before nor behind the products around
    # it. Elsewhere it waits for a product first and does the softmax after, or the mask before.
    always = rows > 0
    slot, phase, turn = 0, 0, 0
    p = gl.zeros([ROWS, KEYS], gl.float32, SCORES)
    if AHEAD:
        b, h, tile = _tile(0, work, CAUSAL)
    for step in range(_count(work, CAUSAL)):
        if not AHEAD:
            b, h, tile = _tile(step, work, CAUSAL)
        row = (tile * GROUPS + ME) * ROWS
        last = gl.cdiv(gl.minimum(row + ROWS, seq_len) if CAUSAL else seq_len, KEYS) - 1
        buffer = step % Q_BUFFERS
        q_tile = q_memory.index(buffer * GROUPS + ME)
        q = q_tile.reshape([ROWS, HEAD_DIM])
        mbarrier.wait(q_full.index(buffer), step // Q_BUFFERS & 1)
        if UNEVEN:
            idle = last + 1 < gl.cdiv(gl.minimum((tile + 1) * GROUPS * ROWS, seq_len), KEYS)
        if UNEVEN and idle:
            mbarrier.arrive(free.index(slot))
            slot, phase = _next(slot, phase, memory)
            if GROUPS == 3:
                mbarrier.wait(turns.index(ME), turn)
                turn ^= 1
                mbarrier.arrive(turns.index((ME + 1) % GROUPS))
        mbarrier.wait(full.index(slot), phase)
        k = memory.index(slot).reshape([KEYS, HEAD_DIM]).permute((1, 0))
        s = hopper.warpgroup_mma_wait(0, deps=(_scores(q, k, p, DEPTH),))
        mbarrier.arrive(free.index(slot))
        slot, phase = _next(slot, phase, memory)
        if UNEVEN and idle:
            mbarrier.arrive(free.index(slot))
            slot, phase = _next(slot, phase, memory)
        if (CAUSAL or RAGGED) and always:
            keys = last * KEYS + gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))
            if CAUSAL:  # a row of the sequence comes before the ragged end, which is therefore masked too
                seen = (row + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES)))[:, None] >= keys[None, :]
            else:
                seen = (keys < seq_len)[None, :]
            s = gl.where(seen, s, float("-inf"))  # no row has all of this block masked: no maximum is -inf
        top = gl.max(s, 1)
        p = _exp2(s * scale - (top * scale)[:, None])
        sums = gl.sum(gl.reshape(p, [ROWS, KEYS // 8, 8]), 1)  # eight parts of a row, until the tile is done
        weights = _halved(p, out.dtype, WEIGHTS)
        o = gl.zeros([ROWS, HEAD_DIM], gl.float32, OUTPUT)
        if Q_BUFFERS == 2:
            tma.store_wait(0)  # of the tile before: its buffer may be filled again
            mbarrier.arrive(q_free.index((step + 1) % 2), pred=step > 0)
        # Nothing is under way where the loop turns, or ptxas would serialise all products (its warning C7514).
        for _ in range(last):
            mbarrier.wait(full.index(slot), phase)
            if GROUPS == 3:
                mbarrier.wait(turns.index(ME), turn)
                turn ^= 1
            k = memory.index(slot).reshape([KEYS, HEAD_DIM]).permute((1, 0))
            coming = _scores(q, k, p, DEPTH)
            k_slot = slot
            slot, phase = _next(slot, phase, memory)
            mbarrier.wait(full.index(slot), phase)
            adding = hopper.warpgroup_mma(weights, memory.index(slot).reshape([KEYS, HEAD_DIM]), o, is_async=True)
            if GROUPS == 3:
                mbarrier.arrive(turns.index((ME + 1) % GROUPS))
            s = hopper.warpgroup_mma_wait(1, deps=(coming,))
            mbarrier.arrive(free.index(k_slot))
            p = s
            shrink = top
            if always:
                new_top = gl.maximum(top, gl.max(s, 1))
                new_top = gl.where((new_top - top) * scale > LAZY, new_top, top)
                shrink = _exp2((top - new_top) * scale)
                top = new_top
                p = _exp2(s * scale - (top * scale)[:, None])
                factor = gl.convert_layout(shrink, gl.SliceLayout(1, sums.type.layout), assert_trivial=True)
                sums = sums * factor[:, None] + gl.sum(gl.reshape(p, [ROWS, KEYS // 8, 8]), 1)
                if EARLY:
                    weights = _halved(p, out.dtype, WEIGHTS)
            o = hopper.warpgroup_mma_wait(0, deps=(adding,))
            mbarrier.arrive(free.index(slot))
            slot, phase = _next(slot, phase, memory)
            if always:
                o = _scaled(o, shrink, min(HEAD_DIM // 2, 64))
            if not EARLY:
                weights = _halved(p, out.dtype, WEIGHTS)
        mbarrier.wait(full.index(slot), phase)
        adding = hopper.warpgroup_mma(weights, memory.index(slot).reshape([KEYS, HEAD_DIM]), o, is_async=True)
        to_b, to_h = b, h
        if AHEAD:
            b, h, tile = _tile(step + 1, work, CAUSAL)
        inverse = gl.convert_layout(1.0 / gl.sum(sums, 1), gl.SliceLayout(1, OUTPUT))
        o = hopper.warpgroup_mma_wait(0, deps=(adding,))
        mbarrier.arrive(free.index(slot))
        slot, phase = _next(slot, phase, memory)
        q.store((o * inverse[:, None]).to(out.dtype))  # no product needs the queries any more
        hopper.fence_async_shared()
        tma.async_copy_shared_to_global(out, [to_b, to_h, row, 0], q_tile)
        if Q_BUFFERS == 1:
            tma.store_wait(0)
            mbarrier.arrive(q_free.index(0))
    tma.store_wait(0)


@gluon.jit
def _barriers(N: gl.constexpr, COUNT: gl.constexpr):
    barriers = gl.allocate_shared_memory(gl.int64, [N, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(N):
        mbarrier.init(barriers.index(i), count=COUNT)
    return barriers


@gluon.jit(do_not_specialize=["rows", "heads", "all_heads", "paired", "group", "seq_len"])  # one compilation serves all
def _attention(
    q, k, v, out, rows, heads, all_heads, paired, group, seq_len, scale,  # scale: times log2(e)
    DEPTH: gl.constexpr, CAUSAL: gl.constexpr, RAGGED: gl.constexpr, GROUPS: gl.constexpr, SLOTS: gl.constexpr,
    Q_BUFFERS: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    q_memory = gl.allocate_shared_memory(q.dtype, [Q_BUFFERS * GROUPS] + q.block_type.shape, q.layout)  # noqa: RUF005
    memory = gl.allocate_shared_memory(q.dtype, [SLOTS] + k.block_type.shape, k.layout)  # noqa: RUF005
    q_full = _barriers(Q_BUFFERS, 1)
    q_free = _barriers(Q_BUFFERS, GROUPS)
    full = _barriers(SLOTS, 1)
    free = _barriers(SLOTS, GROUPS)
    turns = _barriers(GROUPS, 1)
    hopper.fence_async_shared()
    mbarrier.arrive(turns.index(0))
    buffers = (q_memory, memory, q_full, q_free, full, free, turns)
    work = (rows, heads, all_heads, paired, group, seq_len)
    # Written out, for Gluon makes the compile-time numbers of a list that is put together into run-time ones.
    if GROUPS == 2:
        gl.warp_specialize([
            (_multiplier, (out, buffers, work, scale, DEPTH, CAUSAL, RAGGED, 0)),
            (_multiplier, (out, buffers, work, scale, DEPTH, CAUSAL, RAGGED, 1)),
            (_loader, (q, k, v, buffers, work, CAUSAL)),
        ], [4, 1], [REGISTERS, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (_multiplier, (out, buffers, work, scale, DEPTH, CAUSAL, RAGGED, 0)),
            (_multiplier, (out, buffers, work, scale, DEPTH, CAUSAL, RAGGED, 1)),
            (_multiplier, (out, buffers, work, scale, DEPTH, CAUSAL, RAGGED, 2)),
            (_loader, (q, k, v, buffers, work, CAUSAL)),
        ], [4, 4, 1], [REGISTERS, REGISTERS, 24])  # fmt: skip
