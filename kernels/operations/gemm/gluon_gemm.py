"""Matrix product for Hopper in Gluon: a warp loads slices of A and B by TMA, one or two groups of four warps multiply.

Slices go through a ring of slots in shared memory. A group multiplies 64 rows of a tile by wgmma, and frees the slot of a
slice while it multiplies the next. A program does one tile after the other, or, of a long K with few tiles, a share of K of
one, whose float32 sums it leaves in a workspace. A second launch adds them in a fixed order: results repeat. Where A has few
rows the product is turned, B^T A^T, for a group has 64 rows and any number of columns. Left and right are A and B, or B^T
and A^T. Of fp8 each slice is multiplied alone and added in float32: tensor cores add fp8 with 14 bits.
Which tile a product gets is data: RULES. A rule without evidence is a guess.
"""

from dataclasses import make_dataclass
from typing import NamedTuple

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import async_copy, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.catalog import Unsupported, cuda, kernel

ROWS = gl.constexpr(64)  # of a tile for a group of warps: what one wgmma takes
SHARED_BYTES, FOR_BARRIERS = 227 * 1024, 1024  # of a program on Hopper, and what of it barriers and alignment may take
ADDED, AT_ONCE, MOST_SPLITS = 512, 16, 96  # second launch: sums of a program, shares loaded by one call, shares held
AT_START, REGISTERS = 168, gl.constexpr(240)  # of a thread: of all at first, and then of those that multiply


class Tile(NamedTuple):
    """How a launch is cut up."""

    block_m: int
    block_n: int
    block_k: int
    slots: int  # slices of A and of B in shared memory at a time
    splits: int = 1  # shares of K; 1: no second launch
    group: int = 8  # rows of tiles that are numbered together: programs in flight share them
    parts: int = 1  # in which a tile is stored: 1, 2 or 4; of 4, two may be on their way
    turned: int = 0  # 1: B^T A^T


class Rule(NamedTuple):
    """The tile of the products within its bounds; the first rule that fits counts."""

    tile: Tile
    most_m: int = 2**31
    most_n: int = 2**31
    least_k: int = 1
    most_tiles: int = 2**36  # of 128 x 128
    evidence: str = ""  # the file of docs/measurements that shows it; empty: not measured


MEASURED = "gluon-gemm-tiles-h200-2026-11-28.jsonl"
RULES = (
    Rule(Tile(128, 256, 64, 4, splits=32), most_tiles=4, least_k=16384, evidence=MEASURED),
    Rule(Tile(128, 128, 128, 3, splits=8), most_tiles=16, least_k=8192, evidence=MEASURED),
    Rule(Tile(16, 64, 256, 5, turned=1), most_m=16, evidence=MEASURED),
    Rule(Tile(128, 16, 128, 5), most_n=16, evidence=MEASURED),
    Rule(Tile(128, 256, 64, 4, splits=4), most_tiles=66, least_k=16384, evidence=MEASURED),
    Rule(Tile(64, 64, 64, 8), most_tiles=33, evidence=MEASURED),
    Rule(Tile(64, 128, 128, 4), most_m=128, most_tiles=66, evidence=MEASURED),
    Rule(Tile(64, 128, 64, 6, group=4), most_tiles=66, evidence=MEASURED),
    Rule(Tile(128, 128, 64, 6), most_tiles=132),
    Rule(Tile(128, 256, 64, 4, group=4, parts=4), most_tiles=2048, evidence=MEASURED),
    Rule(Tile(128, 256, 64, 4, parts=4), evidence=MEASURED),
)
FP8_RULES = (
    Rule(Tile(16, 64, 128, 12, turned=1), most_m=16, evidence=MEASURED),
    Rule(Tile(128, 64, 128, 8), most_tiles=66, evidence=MEASURED),
    Rule(Tile(128, 128, 128, 6, group=4), most_tiles=2048, evidence=MEASURED),
    Rule(Tile(128, 128, 128, 6), evidence=MEASURED),
)


def rule(m, n, k, fp8=False):
    """The rule of an m x n product over k."""
    tiles = triton.cdiv(m, 128) * triton.cdiv(n, 128)
    fits = (one for one in (FP8_RULES if fp8 else RULES) if m <= one.most_m and n <= one.most_n)
    return next(one for one in fits if k >= one.least_k and tiles <= one.most_tiles)


@kernel(
    "gemm", backend="gluon", dtypes=("float16", "bfloat16", "float8_e4m3fn"),
    needs=cuda(architecture=9.0, triton=(">=3.6", "<3.7")), limits={"batch": (1,)},
    space={
        "block_m": (16, 32, 64, 128, 256), "block_n": (16, 32, 64, 128, 256), "block_k": (64, 128, 256),
        "slots": (2, 3, 4, 5, 6, 7, 8, 10, 12), "splits": (1, 2, 4, 8, 16, 32, 33, 64, 66), "group": (4, 8, 16),
        "parts": (1, 2, 4), "turned": (0, 1),
    },
)  # fmt: skip
def gluon_gemm(a, b, *, trans_a=False, trans_b=False, settings=None):
    """Matrix product in Gluon for Hopper: TMA, wgmma, specialised warps, K split where it is long; float32 sums."""
    m, n, k = _sizes(a, b, trans_a, trans_b)
    fp8 = a.dtype == torch.float8_e4m3fn
    return launch(a, b, fitting(Tile(**settings), fp8) if settings else rule(m, n, k, fp8).tile, trans_a, trans_b)


def groups_and_columns(tile):
    """Groups of warps that multiply, and columns of what each multiplies."""
    return (tile.block_n // 64, tile.block_m) if tile.turned else (tile.block_m // 64, tile.block_n)


def fitting(tile, fp8=False):
    """The tile, if registers and the 227 KiB of shared memory of Hopper can hold it. Raises Unsupported."""
    (groups, columns), most = groups_and_columns(tile), 128 if fp8 else 256
    if groups not in (1, 2) or columns > most:
        raise Unsupported(f"a tile has 64 or 128 rows and up to {most} columns here; a turned one the other way round")
    if tile.parts > 1 and (tile.splits > 1 or columns < 16 * tile.parts):
        raise Unsupported("a tile is stored in parts only where K is not split, of 16 or more columns: parts=1")
    if tile.splits > MOST_SPLITS or (fp8 and tile.block_k > 128):
        raise Unsupported(f"this kernel does up to {MOST_SPLITS} shares of K, and of fp8 slices of up to 128 terms")
    needed = (tile.block_m + tile.block_n) * tile.block_k * (1 if fp8 else 2) * tile.slots + FOR_BARRIERS
    needed += 2 * tile.block_m * tile.block_n * max(1, tile.parts // 2) // tile.parts if tile.splits == 1 else 0
    if needed > SHARED_BYTES:
        raise Unsupported(f"needs {needed} bytes of shared memory, this device has {SHARED_BYTES}")
    return tile


def launch(a, b, tile, trans_a=False, trans_b=False):
    """The product of a (M, K), or (K, M) if trans_a, and b (K, N), or (N, K), with a given tile. Returns a new (M, N)."""
    m, n, k = _sizes(a, b, trans_a, trans_b)
    groups, columns = groups_and_columns(tile)
    left, right, left_by_k, right_by_k = a, b, trans_a, not trans_b  # by k: stored with K first
    across, along, strides = m, n, (n, 1)  # of the product that is computed
    if tile.turned:
        left, right, left_by_k, right_by_k, across, along, strides = b, a, right_by_k, left_by_k, n, m, (1, n)
    size, split, splits = tile.block_m * tile.block_n, tile.splits > 1, min(tile.splits, triton.cdiv(k, tile.block_k))
    count = triton.cdiv(m, tile.block_m) * triton.cdiv(n, tile.block_n)
    items = count * splits
    out = torch.empty((m, n), dtype=torch.bfloat16 if a.element_size() == 1 else a.dtype, device=a.device)
    sums = torch.empty(items * size if split else 1, dtype=torch.float32, device=a.device)
    stored = [columns // tile.parts, ROWS.value] if tile.turned else [ROWS.value, columns // tile.parts]
    with torch.cuda.device_of(a):  # Triton launches on the current device, which may not be the tensors'
        _product[(min(items, torch.cuda.get_device_properties(a.device).multi_processor_count),)](
            _descriptor(left, [tile.block_k, ROWS.value] if left_by_k else [ROWS.value, tile.block_k]),
            _descriptor(right, [tile.block_k, columns] if right_by_k else [columns, tile.block_k]),
            _descriptor(out, stored), sums, across, along, k, splits, items, GROUPS=groups, COLUMNS=columns,
            TERMS=tile.block_k, SLOTS=tile.slots, GROUP=tile.group, PARTS=tile.parts, LEFT_BY_K=left_by_k,
            RIGHT_BY_K=right_by_k, TURNED=bool(tile.turned), SPLIT=split, num_warps=4, maxnreg=AT_START,
        )  # fmt: skip
        if split:
            _addition[(count, triton.cdiv(size, ADDED))](
                out, sums, across, along, *strides, SPLITS=splits, AT_ONCE=min(AT_ONCE, triton.next_power_of_2(splits)),
                ADDED=ADDED, GROUPS=groups, COLUMNS=columns, GROUP=tile.group, num_warps=4, launch_pdl=True,
            )  # fmt: skip
    return out


def _sizes(a, b, trans_a, trans_b):
    """M, N and K. Raises Unsupported."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[0 if trans_a else 1] != b.shape[1 if trans_b else 0]:
        raise Unsupported(f"a and b are {tuple(a.shape)} and {tuple(b.shape)}; needs (M, K) and (K, N)")
    if a.dtype not in (torch.float16, torch.bfloat16, torch.float8_e4m3fn) or b.dtype != a.dtype:
        raise Unsupported(f"dtypes are {a.dtype} and {b.dtype}; this kernel does both float16, bfloat16 or fp8")
    if a.element_size() == 1 and (trans_a or not trans_b):
        raise Unsupported("of fp8 this kernel does a stored (M, K) and b stored (N, K)")
    step, m, n = 16 // a.element_size(), a.shape[1 if trans_a else 0], b.shape[0 if trans_b else 1]
    rows = [("M" if trans_a else "K", a.shape[1], step, a), ("K" if trans_b else "N", b.shape[1], step, b)]
    for name, size, least, x in (*rows, ("N", n, 8, b)):
        if size % least or x.stride(1) != 1 or x.stride(0) % step or x.data_ptr() % 16:
            raise Unsupported(f"{name} is {size}; this kernel does multiples of {least}, with rows one after the other")
    return m, n, a.shape[0 if trans_a else 1]


def _descriptor(x, block):
    element = gl.float8e4nv if x.element_size() == 1 else gl.float16
    return TensorDescriptor.from_tensor(x, block, gl.NVMMASharedLayout.get_default_for(block, element))


KNOWN = "groups height columns terms slots group parts left_by_k right_by_k turned split"
How = make_dataclass("How", KNOWN.split(" "), frozen=True)
"""What is known at compile time. height: rows of a tile. terms: of a slice of K. left_by_k: left is stored with K first."""


@gluon.constexpr_function
def _how(groups, *others):
    return How(*(gl.constexpr(one) for one in (groups, groups * ROWS.value, *others)))


@gluon.jit
def _item(index, work, HOW: gl.constexpr):
    """First row and column of a tile, and of its share of K the first slice and the one behind the last."""
    m, n, k, splits, _ = work
    tile, split = index // splits, index % splits
    of_group = HOW.group * gl.cdiv(n, HOW.columns)
    top = tile // of_group * HOW.group
    height = gl.minimum(gl.cdiv(m, HOW.height) - top, HOW.group)
    row, column = (top + tile % of_group % height) * HOW.height, tile % of_group // height * HOW.columns
    slices = gl.cdiv(k, HOW.terms)
    return row, column, split * slices // splits, (split + 1) * slices // splits


@gluon.jit
def _next(slot, phase, HOW: gl.constexpr):
    wraps = slot + 1 == HOW.slots
    return gl.where(wraps, 0, slot + 1), gl.where(wraps, phase ^ 1, phase)


@gluon.jit
def _before(slot, HOW: gl.constexpr):
    """The slot before this one. Computed: a second name for `slot` would keep the value that it has where a loop begins."""
    return gl.where(slot == 0, HOW.slots, slot) - 1


@gluon.jit
def _loader(given, HOW: gl.constexpr):
    left, right, _, _, buffers, work = given
    left_memory, right_memory, _, full, free = buffers
    slot, phase = 0, 1  # a wait for the phase before the first returns at once
    for index in range(gl.program_id(0), work[4], gl.num_programs(0)):
        row, column, first, last = _item(index, work, HOW)
        for at in range(first, last):
            k, arrived = at * HOW.terms, full.index(slot)
            mbarrier.wait(free.index(slot), phase)
            mbarrier.expect(arrived, HOW.groups * left.block_type.nbytes + right.block_type.nbytes)
            for part in gl.static_range(HOW.groups):
                place = [k, row + part * ROWS] if HOW.left_by_k else [row + part * ROWS, k]
                tma.async_copy_global_to_shared(left, place, arrived, left_memory.index(slot * HOW.groups + part))
            place = [k, column] if HOW.right_by_k else [column, k]
            tma.async_copy_global_to_shared(right, place, arrived, right_memory.index(slot))
            slot, phase = _next(slot, phase, HOW)
    if HOW.split:
        gdc_launch_dependents()  # its programs wait for the end of this launch all the same


@gluon.jit
def _part(x, PART: gl.constexpr, PARTS: gl.constexpr):
    """Some columns of x, which are registers of their own: nothing is moved."""
    part = x
    if PARTS > 1:
        low, high = x.reshape([ROWS, 2, x.shape[1] // 2]).permute([0, 2, 1]).split()
        part = _part(high if PART >= PARTS // 2 else low, PART % (PARTS // 2), PARTS // 2)
    return part


@gluon.jit
def _leave(total, sums, index, HOW: gl.constexpr, ME: gl.constexpr):
    """Sums of a share of K into the workspace."""
    down = gl.arange(0, ROWS, gl.SliceLayout(1, total.type.layout))
    along = gl.arange(0, HOW.columns, gl.SliceLayout(0, total.type.layout))
    mine = sums + (index.to(gl.int64) * HOW.groups + ME) * (ROWS * HOW.columns)
    gl.store(mine + (down[:, None] * HOW.columns + along[None, :]), total)


@gluon.jit
def _store(total, out, staging, row, column, HOW: gl.constexpr, ME: gl.constexpr):
    """A tile's 64 rows of this group by TMA, which goes on while the next tile is multiplied."""
    PLACES: gl.constexpr = staging.shape[0] // HOW.groups
    for part in gl.static_range(HOW.parts):
        place = staging.index(ME * PLACES + part % PLACES)
        tma.store_wait(PLACES - 1)
        x = _part(total, part, HOW.parts).to(out.dtype)
        (place.permute((1, 0)) if HOW.turned else place).store(x)
        hopper.fence_async_shared()
        line, to = row + ME * ROWS, column + part * (HOW.columns // HOW.parts)
        tma.async_copy_shared_to_global(out, [to, line] if HOW.turned else [line, to], place)


@gluon.jit
def _multiplier(given, HOW: gl.constexpr, ME: gl.constexpr):
    _, _, out, sums, buffers, work = given
    left_memory, right_memory, staging, full, free = buffers
    FP8: gl.constexpr = left_memory.dtype == gl.float8e4nv
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HOW.columns, 32 if FP8 else 16])
    slot, phase = 0, 0
    total = gl.zeros([ROWS, HOW.columns], gl.float32, SUMS)
    part = total
    for index in range(gl.program_id(0), work[4], gl.num_programs(0)):
        row, column, first, last = _item(index, work, HOW)
        if FP8:
            total = gl.zeros([ROWS, HOW.columns], gl.float32, SUMS)
        for at in range(first, last):
            mbarrier.wait(full.index(slot), phase)
            a, b = left_memory.index(slot * HOW.groups + ME), right_memory.index(slot)
            a = a.permute((1, 0)) if HOW.left_by_k else a
            b = b if HOW.right_by_k else b.permute((1, 0))
            if FP8:  # meanwhile the other group multiplies
                part = hopper.warpgroup_mma(a, b, part, use_acc=False, is_async=True)
                part = hopper.warpgroup_mma_wait(0, deps=(part,))
                mbarrier.arrive(free.index(slot))
                total += part
            else:
                total = hopper.warpgroup_mma(a, b, total, use_acc=at > first, is_async=True)
                total = hopper.warpgroup_mma_wait(1, deps=(total,))
                mbarrier.arrive(free.index(_before(slot, HOW)), pred=at > first)
            slot, phase = _next(slot, phase, HOW)
        if not FP8:
            total = hopper.warpgroup_mma_wait(0, deps=(total,))
            mbarrier.arrive(free.index(_before(slot, HOW)))
        if HOW.split:
            _leave(total, sums, index, HOW, ME)
        else:
            _store(total, out, staging, row, column, HOW, ME)
    tma.store_wait(0)


@gluon.jit
def _barriers(N: gl.constexpr, COUNT: gl.constexpr):
    barriers = gl.allocate_shared_memory(gl.int64, [N, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(N):
        mbarrier.init(barriers.index(i), count=COUNT)
    return barriers


@gluon.jit(do_not_specialize=["m", "n", "k", "splits", "items"])
def _product(
    left, right, out, sums, m, n, k, splits, items, GROUPS: gl.constexpr, COLUMNS: gl.constexpr, TERMS: gl.constexpr,
    SLOTS: gl.constexpr, GROUP: gl.constexpr, PARTS: gl.constexpr, LEFT_BY_K: gl.constexpr, RIGHT_BY_K: gl.constexpr,
    TURNED: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    HOW: gl.constexpr = _how(GROUPS, COLUMNS, TERMS, SLOTS, GROUP, PARTS, LEFT_BY_K, RIGHT_BY_K, TURNED, SPLIT)
    left_memory = gl.allocate_shared_memory(left.dtype, [SLOTS * GROUPS] + left.block_type.shape, left.layout)  # noqa: RUF005
    right_memory = gl.allocate_shared_memory(right.dtype, [SLOTS] + right.block_type.shape, right.layout)  # noqa: RUF005
    staging = right_memory
    if not SPLIT:
        staging = gl.allocate_shared_memory(out.dtype, [GROUPS * max(1, PARTS // 2)] + out.block_type.shape, out.layout)  # noqa: RUF005
    full, free = _barriers(SLOTS, 1), _barriers(SLOTS, GROUPS)
    hopper.fence_async_shared()
    given = (left, right, out, sums, (left_memory, right_memory, staging, full, free), (m, n, k, splits, items))
    if GROUPS == 1:
        gl.warp_specialize([(_multiplier, (given, HOW, 0)), (_loader, (given, HOW))], [1], [24])
    else:
        gl.warp_specialize([(_multiplier, (given, HOW, 0)), (_multiplier, (given, HOW, 1)), (_loader, (given, HOW))],
                           [4, 1], [REGISTERS, 24])  # fmt: skip


@gluon.jit(do_not_specialize=["m"])
def _addition(
    out, sums, m, n, out_row, out_column, SPLITS: gl.constexpr, AT_ONCE: gl.constexpr, ADDED: gl.constexpr,
    GROUPS: gl.constexpr, COLUMNS: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """Adds all shares of ADDED sums of a tile. They come to shared memory together: a thread has too few registers for
    them, and would wait for memory several times. It reads only what it has asked for."""
    HOW: gl.constexpr = _how(GROUPS, COLUMNS, 1, 0, GROUP, 0, 0, 0, 0, 0)
    SIZE: gl.constexpr = HOW.height * COLUMNS
    TIMES: gl.constexpr = (SPLITS + AT_ONCE - 1) // AT_ONCE
    EACH: gl.constexpr = gl.BlockedLayout([AT_ONCE, 4], [1, 32], [1, gl.num_warps()], [1, 0])  # a thread has all shares
    memory = gl.allocate_shared_memory(gl.float32, [TIMES, AT_ONCE, ADDED], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    row, column, _, _ = _item(gl.program_id(0), (m, n, 1, 1, 0), HOW)
    place = gl.program_id(1) * ADDED + gl.arange(0, ADDED, gl.SliceLayout(0, EACH))
    shares = gl.arange(0, AT_ONCE, gl.SliceLayout(1, EACH))[:, None]
    sums += gl.program_id(0).to(gl.int64) * (SPLITS * SIZE)
    gdc_wait()
    for time in gl.static_range(TIMES):
        share = gl.minimum(time * AT_ONCE + shares, SPLITS - 1)  # the last one again is not added
        async_copy.async_copy_global_to_shared(memory.index(time), sums + (share * SIZE + place[None, :]))
    async_copy.commit_group()
    async_copy.wait_group(0)
    total = gl.zeros([ADDED], gl.float32, gl.SliceLayout(0, EACH))
    for time in gl.static_range(TIMES):
        some = gl.where(time * AT_ONCE + shares < SPLITS, memory.index(time).load(EACH), 0.0)
        total += gl.sum(some, 0)
    down, along = row + place // COLUMNS, column + place % COLUMNS
    to = out + down.to(gl.int64) * out_row + along.to(gl.int64) * out_column
    gl.store(to, total.to(out.dtype.element_ty), mask=(down < m) & (along < n))
