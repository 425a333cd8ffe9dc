"""Flash attention forward for Hopper in Gluon, for up to 512 keys: a program keeps all keys and values of a head.

A program reads each block of K and V once, into a place of its own in shared memory. There is no ring and no loader: each
group of four warps asks for its share at the start, and computes as the blocks arrive, from the first key to the last. A
group does one or two tiles of 64 queries. Causal tiles are dealt so that groups and programs have the same work. Softmax
is in base 2 and float32; the scale is applied to float32 scores.
"""

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
LONGEST = 512  # sequence: K and V of a head fill 128 KiB of shared memory
HEAD_DIM = gl.constexpr(64)
ROWS = gl.constexpr(64)  # of queries for a group of four warps: what one wgmma takes
LAZY = gl.constexpr(8.0)  # powers of two by which a maximum may grow before sums are rescaled; float16 holds 2^8


class Tile(NamedTuple):
    """How a launch is cut up. A head's tiles of 64 rows are dealt to programs x groups x turns."""

    groups: int  # of four warps with tiles of their own: 1 or 4
    turns: int  # tiles that a group does
    keys: int  # of a block
    chunk: int  # blocks of K, or of V, that come together
    fill: int = 1  # programs that share a processor


def tiles(causal, seq_len, all_heads, processors):
    """The tile for a problem; `all_heads` is B * H.

    The best of 7 to 32 tiles for each of ten workloads on an H100, fp16, where S is 128, 256 or 512, measured with the form
    that computed the softmax after both products: docs/measurements/short-attention-h100-2026-11-25.jsonl. Other lengths
    have the tile of the next longer one.
    """
    if triton.cdiv(seq_len, ROWS.value) * all_heads <= processors:  # each tile has a processor to itself
        return Tile(groups=1, turns=1, keys=128, chunk=2 if seq_len > 256 else 1)
    if seq_len <= 256:
        return Tile(groups=1, turns=1, keys=64, chunk=2 if seq_len > 64 else 1, fill=3)
    if causal:
        return Tile(groups=4, turns=2, keys=64, chunk=2)
    if 2 * all_heads <= processors:  # two programs for a head
        return Tile(groups=4, turns=1, keys=64, chunk=2)
    return Tile(groups=4, turns=2, keys=64, chunk=4)


@kernel(
    "attention", backend="gluon", dtypes=("float16", "bfloat16"),
    needs=cuda(architecture=9.0, triton=(">=3.6", "<3.7")), limits={"head_dim": (64,)},
)  # fmt: skip
def gluon_short(q, k, v, *, causal, scale):
    """Flash attention in Gluon for Hopper, up to 512 keys: K and V of a head stay in shared memory, read once."""
    _check(q, k, v, scale)
    processors = torch.cuda.get_device_properties(q.device).multi_processor_count
    return launch(q, k, v, causal, scale, tiles(causal, q.shape[2], q.shape[0] * q.shape[1], processors))


def launch(q, k, v, causal, scale, tile):
    """Attention of q (B, H, S, D) and k, v (B, Hkv, S, D) with a given tile. Returns a new, contiguous (B, H, S, D)."""
    batch, heads, seq_len, _ = q.shape
    parts = triton.cdiv(seq_len, ROWS.value * tile.groups * tile.turns)
    load = tile.keys * tile.chunk
    registers = min(248, 65536 // (128 * tile.groups * tile.fill) // 8 * 8)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    with torch.cuda.device_of(q):  # Triton launches on the current device, which need not be the tensors'
        _attention[(batch * heads * parts,)](
            _descriptor(q, ROWS.value), _descriptor(k, load), _descriptor(v, load), _descriptor(out, ROWS.value),
            heads, heads // k.shape[1], seq_len, scale * LOG2_E, CAUSAL=causal,
            RAGGED=not causal and seq_len % load != 0, GROUPS=tile.groups, TURNS=tile.turns, PARTS=parts,
            CHUNKS=triton.cdiv(seq_len, load), CHUNK=tile.chunk, REGISTERS=registers, num_warps=4, maxnreg=registers,
        )  # fmt: skip
    return out


def _check(q, k, v, scale):
    if k.shape != v.shape or q.shape[2:] != k.shape[2:] or q.shape[0] != k.shape[0] or q.shape[1] % k.shape[1]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise Unsupported(f"q, k and v are {shapes}; needs (B, H, S, D) and twice (B, Hkv, S, D)")
    if q.shape[2] > LONGEST:
        raise Unsupported(f"seq_len is {q.shape[2]}; this kernel does up to {LONGEST}")
    if q.dtype not in (torch.float16, torch.bfloat16) or {k.dtype, v.dtype} != {q.dtype} or q.shape[3] != 64:
        raise Unsupported("this kernel does head_dim 64, all in float16 or all in bfloat16")
    if not 0 < scale < 2**16:
        raise Unsupported(f"scale is {scale}; it must be positive, for row maxima are taken before scaling")


def _descriptor(x, rows):
    aligned = x.data_ptr() % 16 == 0 and all(stride * x.element_size() % 16 == 0 for stride in x.stride()[:-1])
    x = x if aligned and x.stride(-1) == 1 else x.contiguous()
    return TensorDescriptor.from_tensor(x, [1, 1, rows, HEAD_DIM.value], LAYOUT)


LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)


@gluon.jit
def _place(place, turn, group, GROUPS: gl.constexpr, PARTS: gl.constexpr, TURNS: gl.constexpr, CAUSAL: gl.constexpr):
    """The tile of a group of program `place` of a head, in its turn. Causal tiles go forwards and backwards over groups
    and turns, so that their sums are equal."""
    if CAUSAL:
        of = group * PARTS + (place if group % 2 == 0 else PARTS - 1 - place)
        tile = turn * (GROUPS * PARTS) + (of if turn % 2 == 0 else GROUPS * PARTS - 1 - of)
    else:
        tile = (place * TURNS + turn) * GROUPS + group
    return tile


@gluon.jit
def _longest(place, GROUPS: gl.constexpr, PARTS: gl.constexpr, TURNS: gl.constexpr):
    """The causal tile of program `place` of a head that sees most keys."""
    return _place(place, TURNS - 1, 0 if TURNS % 2 == 0 else GROUPS - 1, GROUPS, PARTS, TURNS, True)


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
def _ask(x, b, h, row, memory, full):
    mbarrier.expect(full, x.block_type.nbytes)
    tma.async_copy_global_to_shared(x, [b, h, row, 0], full, memory)


@gluon.jit
def _masked(s, row, start, seq_len, CAUSAL: gl.constexpr):
    keys = start + gl.arange(0, s.shape[1], gl.SliceLayout(0, s.type.layout))
    if CAUSAL:  # a row of the sequence comes before the ragged end, which is therefore masked too
        seen = (row + gl.arange(0, s.shape[0], gl.SliceLayout(1, s.type.layout)))[:, None] >= keys[None, :]
    else:
        seen = (keys < seq_len)[None, :]
    return gl.where(seen, s, float("-inf"))  # the first key is always seen: no maximum is -inf


@gluon.jit
def _tile(
    out, buffers, b, h, row, seq_len, scale, CAUSAL: gl.constexpr, RAGGED: gl.constexpr, CHUNK: gl.constexpr,
    EARLY: gl.constexpr, AT: gl.constexpr,
):  # fmt: skip
    """64 rows of the output, from queries that are in place AT of shared memory, or on their way."""
    q_memory, k_chunks, v_chunks, q_full, k_full, v_full = buffers
    KEYS: gl.constexpr = k_chunks.shape[3] // CHUNK
    BLOCKS: gl.constexpr = k_chunks.shape[0] * CHUNK
    k_memory = k_chunks._reinterpret(k_chunks.dtype, [BLOCKS, 1, 1, KEYS, HEAD_DIM], k_chunks.layout)
    v_memory = v_chunks._reinterpret(v_chunks.dtype, [BLOCKS, 1, 1, KEYS, HEAD_DIM], v_chunks.layout)
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    OUTPUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUTPUT, k_width=2)
    # Two conditions that are always true, which ptxas does not know: it moves what is in a branch neither before nor
    # behind the products around it. Of two branches on one condition it would make one, with the wait between them at
    # its start: the softmax would come after the product that it should hide.
    always, too = seq_len > 0, scale > 0
    count = gl.minimum((row + ROWS + KEYS - 1) // KEYS, BLOCKS) if CAUSAL else gl.cdiv(seq_len, KEYS)
    q_tile = q_memory.index(AT)
    queries = q_tile.reshape([ROWS, HEAD_DIM])
    mbarrier.wait(q_full.index(AT), 0)
    mbarrier.wait(k_full.index(0), 0)
    s = gl.zeros([ROWS, KEYS], gl.float32, SCORES)
    keys = k_memory.index(0).reshape([KEYS, HEAD_DIM]).permute((1, 0))
    s = hopper.warpgroup_mma(queries, keys, s, use_acc=False, is_async=True)
    s = hopper.warpgroup_mma_wait(0, deps=(s,))
    if CAUSAL:
        if row < KEYS:
            s = _masked(s, row, 0, seq_len, CAUSAL)
    elif RAGGED and seq_len < KEYS:
        s = _masked(s, row, 0, seq_len, CAUSAL)
    top = gl.max(s, 1)
    p = _exp2(s * scale - (top * scale)[:, None])
    sums = gl.sum(gl.reshape(p, [ROWS, KEYS // 8, 8]), 1)  # eight parts of a row, until the tile is done
    weights = _halved(p, out.dtype, WEIGHTS)
    o = gl.zeros([ROWS, HEAD_DIM], gl.float32, OUTPUT)
    # Nothing is under way where the loop turns, or ptxas would serialise all products (its warning C7514).
    for j in range(1, count):
        mbarrier.wait(k_full.index(j // CHUNK), 0)
        keys = k_memory.index(j).reshape([KEYS, HEAD_DIM]).permute((1, 0))
        coming = hopper.warpgroup_mma(queries, keys, p, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index((j - 1) // CHUNK), 0)
        adding = hopper.warpgroup_mma(weights, v_memory.index(j - 1).reshape([KEYS, HEAD_DIM]), o, is_async=True)
        s = hopper.warpgroup_mma_wait(1, deps=(coming,))
        if CAUSAL:
            if (j + 1) * KEYS > row + 1:
                s = _masked(s, row, j * KEYS, seq_len, CAUSAL)
        elif RAGGED and (j + 1) * KEYS > seq_len:
            s = _masked(s, row, j * KEYS, seq_len, CAUSAL)
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
        if too:
            o = _scaled(o, shrink, HEAD_DIM // 2)
        if not EARLY:
            weights = _halved(p, out.dtype, WEIGHTS)
    mbarrier.wait(v_full.index((count - 1) // CHUNK), 0)
    adding = hopper.warpgroup_mma(weights, v_memory.index(count - 1).reshape([KEYS, HEAD_DIM]), o, is_async=True)
    inverse = gl.convert_layout(1.0 / gl.sum(sums, 1), gl.SliceLayout(1, OUTPUT))
    o = hopper.warpgroup_mma_wait(0, deps=(adding,))
    queries.store((o * inverse[:, None]).to(out.dtype))  # no product needs the queries any more
    hopper.fence_async_shared()
    tma.async_copy_shared_to_global(out, [b, h, row, 0], q_tile)


@gluon.jit
def _group(
    q, k, v, out, buffers, work, scale, CAUSAL: gl.constexpr, RAGGED: gl.constexpr, GROUPS: gl.constexpr,
    TURNS: gl.constexpr, PARTS: gl.constexpr, CHUNK: gl.constexpr, ME: gl.constexpr,
):  # fmt: skip
    """What one group of warps does: asks for its tiles of queries and its share of K and V, then multiplies."""
    q_memory, k_chunks, v_chunks, q_full, k_full, v_full = buffers
    place, b, h, kv, needed, seq_len = work
    CHUNKS: gl.constexpr = k_chunks.shape[0]
    LOAD: gl.constexpr = k_chunks.shape[3]
    EARLY: gl.constexpr = not CAUSAL or GROUPS == 1  # weights become 16 bits before the last product is waited for
    tile = _place(place, 0, ME, GROUPS, PARTS, TURNS, CAUSAL)
    _ask(q, b, h, tile * ROWS, q_memory.index(ME), q_full.index(ME))
    for j in gl.static_range(CHUNKS):
        if j % GROUPS == ME and j < needed:
            _ask(k, b, kv, j * LOAD, k_chunks.index(j), k_full.index(j))
            _ask(v, b, kv, j * LOAD, v_chunks.index(j), v_full.index(j))
        if j == (min(CHUNKS - 1, GROUPS) if CAUSAL else CHUNKS - 1):
            for turn in gl.static_range(1, TURNS):
                tile = _place(place, turn, ME, GROUPS, PARTS, TURNS, CAUSAL)
                _ask(q, b, h, tile * ROWS, q_memory.index(turn * GROUPS + ME), q_full.index(turn * GROUPS + ME))
    for turn in gl.static_range(TURNS):
        row = _place(place, turn, ME, GROUPS, PARTS, TURNS, CAUSAL) * ROWS
        _tile(out, buffers, b, h, row, seq_len, scale, CAUSAL, RAGGED, CHUNK, EARLY, turn * GROUPS + ME)
    tma.store_wait(0)


@gluon.jit
def _barriers(N: gl.constexpr):
    barriers = gl.allocate_shared_memory(gl.int64, [N, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(N):
        mbarrier.init(barriers.index(i), count=1)
    return barriers


@gluon.jit(do_not_specialize=["heads", "group", "seq_len"])
def _attention(
    q, k, v, out, heads, group, seq_len, scale,  # scale: times log2(e)
    CAUSAL: gl.constexpr, RAGGED: gl.constexpr, GROUPS: gl.constexpr, TURNS: gl.constexpr, PARTS: gl.constexpr,
    CHUNKS: gl.constexpr, CHUNK: gl.constexpr, REGISTERS: gl.constexpr,
):  # fmt: skip
    q_memory = gl.allocate_shared_memory(q.dtype, [GROUPS * TURNS] + q.block_type.shape, q.layout)  # noqa: RUF005
    k_memory = gl.allocate_shared_memory(q.dtype, [CHUNKS] + k.block_type.shape, k.layout)  # noqa: RUF005
    v_memory = gl.allocate_shared_memory(q.dtype, [CHUNKS] + k.block_type.shape, k.layout)  # noqa: RUF005
    q_full = _barriers(GROUPS * TURNS)
    k_full = _barriers(CHUNKS)
    v_full = _barriers(CHUNKS)
    hopper.fence_async_shared()
    LOAD: gl.constexpr = k.block_type.shape[2]
    head = gl.program_id(0) // PARTS
    place = gl.program_id(0) - head * PARTS
    needed = CHUNKS
    if CAUSAL:
        place = PARTS - 1 - place  # the longest first
        needed = gl.minimum(((_longest(place, GROUPS, PARTS, TURNS) + 1) * ROWS + LOAD - 1) // LOAD, CHUNKS)
    b = head // heads
    h = head - b * heads
    buffers = (q_memory, k_memory, v_memory, q_full, k_full, v_full)
    work = (place, b, h, h // group, needed, seq_len)
    # Written out, for Gluon makes the compile-time numbers of a list that is put together into run-time ones.
    if GROUPS == 1:
        _group(q, k, v, out, buffers, work, scale, CAUSAL, RAGGED, GROUPS, TURNS, PARTS, CHUNK, 0)
    else:
        gl.warp_specialize([
            (_group, (q, k, v, out, buffers, work, scale, CAUSAL, RAGGED, GROUPS, TURNS, PARTS, CHUNK, 0)),
            (_group, (q, k, v, out, buffers, work, scale, CAUSAL, RAGGED, GROUPS, TURNS, PARTS, CHUNK, 1)),
            (_group, (q, k, v, out, buffers, work, scale, CAUSAL, RAGGED, GROUPS, TURNS, PARTS, CHUNK, 2)),
            (_group, (q, k, v, out, buffers, work, scale, CAUSAL, RAGGED, GROUPS, TURNS, PARTS, CHUNK, 3)),
        ], [4, 4, 4], [REGISTERS, REGISTERS, REGISTERS])  # fmt: skip
