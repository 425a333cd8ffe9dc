"""Matrix product in Triton for Hopper: persistent programs, and K split over programs where a long K has few tiles.

Slices of A and B come by the tensor memory accelerator, tiles of the product leave by it. Two ways:
- Many tiles: one program per processor computes tile after tile, grouped so that those in flight share A and B in L2. The
  loads of the next tile run while the last one is stored, in `parts` of its columns, which need less shared memory.
- A long K with few tiles: a program computes a share of K of one tile, and leaves float32 sums in a workspace. A second
  launch, whose programs may start while the first one ends, adds them in the order of K. Nothing is added by atomic
  additions, so results repeat. Adding in the first launch, by the last program of each tile, was slower on an H200.

Which tile a product gets is data: RULES. A rule without evidence is a guess.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.catalog import Unsupported, cuda, kernel


class Tile(NamedTuple):
    """The tile shape and settings of a launch."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    """Slices of A and of B in shared memory at a time."""
    splits: int = 1
    """Shares of K. 1: persistent programs."""
    group: int = 8
    """Rows of tiles shared by programs in flight."""
    parts: int = 1
    """A tile is stored in 1 or 2 parts."""


class Rule(NamedTuple):
    """The tile of the products within its bounds; the first rule that fits counts."""

    tile: Tile
    most_m: int = 2**18
    most_n: int = 2**18
    least_k: int = 1
    most_tiles: int = 2**36
    """Tiles of 128 x 128 of the product."""
    evidence: str = ""
    """The file of docs/measurements that shows it. Empty: not measured."""


MEASURED = "decode-and-gemm-tiles-h200-2026-11-23.json"
RULES = (
    Rule(Tile(128, 128, 64, 8, 4, 16), most_tiles=8, least_k=8192, evidence=MEASURED),
    Rule(Tile(128, 128, 64, 4, 5, 8), most_tiles=16, least_k=8192, evidence=MEASURED),
    Rule(Tile(16, 64, 256, 4, 3), most_m=16, evidence=MEASURED),
    Rule(Tile(64, 16, 256, 4, 3), most_n=16, evidence=MEASURED),
    Rule(Tile(128, 128, 64, 4, 5, 2), most_tiles=66, least_k=16384, evidence=MEASURED),
    Rule(Tile(64, 32, 256, 4, 3), most_tiles=33, evidence=MEASURED),
    Rule(Tile(64, 128, 128, 4, 4), most_tiles=66, evidence=MEASURED),
    Rule(Tile(128, 128, 64, 8, 4), most_tiles=192),
    Rule(Tile(128, 256, 64, 8, 4, group=4, parts=2), most_tiles=1024, evidence=MEASURED),
    Rule(Tile(128, 256, 64, 8, 3), most_tiles=4096, evidence=MEASURED),
    Rule(Tile(128, 256, 64, 8, 3, group=4), evidence=MEASURED),
)


MOST_SUMS, SHARED_BYTES = 32 * 128, 227 * 1024
"""Elements of the product that a warp adds up in registers, and the shared memory of a program on Hopper."""
ADDED = 2048
"""Elements of the product that a program of the second launch adds."""


def rule(m, n, k):
    """The rule of an m x n product over k."""
    tiles = _count(m, n, 128, 128)
    fits = (
        one for one in RULES if m <= one.most_m and n <= one.most_n and k >= one.least_k and tiles <= one.most_tiles
    )
    return next(fits)


def _count(m, n, block_m, block_n):
    return triton.cdiv(m, block_m) * triton.cdiv(n, block_n)


@kernel(
    "gemm",
    backend="triton",
    dtypes=("float16", "bfloat16"),
    needs=cuda(architecture=9.0, triton=(">=3.6",)),
    limits={"batch": (1,)},
    space={
        "block_m": (16, 32, 64, 128), "block_n": (16, 32, 64, 128, 256), "block_k": (32, 64, 128, 256), "warps": (4, 8),
        "stages": (2, 3, 4, 5), "splits": (1, 2, 4, 8, 16, 32, 64), "group": (4, 8), "parts": (1, 2),
    },
)  # fmt: skip
def triton_split_gemm(a, b, *, settings=None):
    """Persistent tiles by TMA, or K split over programs, in Triton for Hopper; float32 sums, tiles from a table."""
    return launch(a, b, fitting(Tile(**settings)) if settings else rule(a.shape[0], b.shape[-1], a.shape[1]).tile)


def fitting(tile):
    """The tile, if registers and the 227 KiB of shared memory of Hopper can hold it. Raises Unsupported."""
    if (sums := tile.block_m * tile.block_n) > MOST_SUMS * tile.warps:
        raise Unsupported(f"{sums // (32 * tile.warps)} sums a thread; this kernel does {MOST_SUMS // 32}")
    if tile.splits > 1 and tile.parts > 1:
        raise Unsupported("a tile is stored in parts only where K is not split: splits=1")
    needed = 2 * (tile.block_m + tile.block_n) * tile.block_k * tile.stages
    needed += 2 * sums // tile.parts if tile.splits == 1 else 0
    if needed > SHARED_BYTES:
        raise Unsupported(f"needs {needed} bytes of shared memory, this device has {SHARED_BYTES}")
    return tile


def launch(a, b, tile):
    """The product of a (M, K) and b (K, N) with a given tile. Returns a new, contiguous (M, N)."""
    _check(a, b)
    (m, k), n = a.shape, b.shape[1]
    splits = min(tile.splits, triton.cdiv(k, tile.block_k))
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    count, processors = _count(m, n, tile.block_m, tile.block_n), _processors(a.device)
    blocks = {"BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n, "BLOCK_K": tile.block_k, "GROUP": tile.group}
    settings = {"num_warps": tile.warps, "num_stages": tile.stages}
    of_a = TensorDescriptor.from_tensor(a, [tile.block_m, tile.block_k])
    of_b = TensorDescriptor.from_tensor(b, [tile.block_k, tile.block_n])
    with torch.cuda.device_of(a):  # Triton launches on the current device, which may not be the tensors'
        if splits == 1:
            of_out = TensorDescriptor.from_tensor(out, [tile.block_m, tile.block_n // tile.parts])
            _persistent[(min(count, processors),)](of_a, of_b, of_out, m, n, k, **blocks, PARTS=tile.parts, **settings)
        else:
            _split_over_programs(of_a, of_b, out, m, n, k, count, splits, tile, blocks | settings)
    return out


def _split_over_programs(of_a, of_b, out, m, n, k, count, splits, tile, settings):
    sums = torch.empty(count * splits * tile.block_m * tile.block_n, dtype=torch.float32, device=out.device)
    early = out.device.type != "cpu"  # Triton's interpreter has no such launch
    _split[(count * splits,)](of_a, of_b, sums, m, n, k, splits, **settings, EARLY=early)
    rows = min(tile.block_m, max(1, ADDED // tile.block_n))
    _reduction[(count, tile.block_m // rows)](
        out, sums, m, n, splits, ROWS=rows, **{name: settings[name] for name in ("BLOCK_M", "BLOCK_N", "GROUP")},
        EARLY=early, num_warps=4, **({"launch_pdl": True} if early else {}),
    )  # fmt: skip


def _check(a, b):
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise Unsupported(f"a and b are {tuple(a.shape)} and {tuple(b.shape)}; needs (M, K) and (K, N)")
    if a.dtype not in (torch.float16, torch.bfloat16) or b.dtype != a.dtype:
        raise Unsupported(f"dtypes are {a.dtype} and {b.dtype}; this kernel does both float16 or both bfloat16")
    for name, x in (("K", a), ("N", b)):
        if x.shape[1] % 8 or x.stride(1) != 1 or x.stride(0) % 8 or x.data_ptr() % 16:
            raise Unsupported(f"{name} is {x.shape[1]}; this kernel does multiples of 8, with rows one after the other")


@cache
def _processors(device):
    """Triton's interpreter works on a CPU, where any number works."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 3


@triton.jit
def _place(tile, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """First row and column. Tiles are numbered down GROUP rows of tiles, then along: the last group may have fewer."""
    of_a_group = GROUP * tl.cdiv(n, BLOCK_N)
    top = tile // of_a_group * GROUP
    height = tl.minimum(tl.cdiv(m, BLOCK_M) - top, GROUP)
    return (top + tile % of_a_group % height) * BLOCK_M, tile % of_a_group // height * BLOCK_N


@triton.jit
def _slices_added(
    a, b, first_row, first_column, first, last, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    """A tile's sums over slices of K from first to last. What lies outside the matrices is 0."""
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for step in range(first, last):
        left, right = a.load([first_row, step * BLOCK_K]), b.load([step * BLOCK_K, first_column])
        sums = tl.dot(left, right, sums)
    return sums


@triton.jit(do_not_specialize=["m"])
def _persistent(
    a, b, out, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """All tiles of this program."""
    count = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), count, tl.num_programs(0), flatten=True):
        row, column = _place(tile, m, n, BLOCK_M, BLOCK_N, GROUP)
        sums = _slices_added(a, b, row, column, 0, tl.cdiv(k, BLOCK_K), BLOCK_M, BLOCK_N, BLOCK_K)
        if PARTS == 2:
            left, right = sums.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1).split()
            out.store([row, column], left.to(out.dtype))
            out.store([row, column + BLOCK_N // 2], right.to(out.dtype))
        else:
            out.store([row, column], sums.to(out.dtype))


@triton.jit(do_not_specialize=["m", "splits"])
def _split(
    a, b, sums, m, n, k, splits, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """A share of K of one tile."""
    split, tile = tl.program_id(0) % splits, tl.program_id(0) // splits
    row, column = _place(tile, m, n, BLOCK_M, BLOCK_N, GROUP)
    slices = tl.cdiv(k, BLOCK_K)
    first, last = split * slices // splits, (split + 1) * slices // splits
    mine = _slices_added(a, b, row, column, first, last, BLOCK_M, BLOCK_N, BLOCK_K)
    if EARLY:
        gdc_launch_dependents()
    size: tl.constexpr = BLOCK_M * BLOCK_N
    within = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    of_tile = sums + tl.cast(tile, tl.int64) * splits * size
    tl.store(of_tile + split * size + within, mine)


@triton.jit(do_not_specialize=["m", "splits"])
def _reduction(
    out, sums, m, n, splits, ROWS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """The second launch: a program adds ROWS rows of a tile."""
    if EARLY:
        gdc_wait()
    row, column = _place(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP)
    of_tile = sums + tl.cast(tl.program_id(0), tl.int64) * splits * (BLOCK_M * BLOCK_N)
    _add_up(out, of_tile, row, column, m, n, splits, tl.program_id(1) * ROWS, ROWS, BLOCK_M * BLOCK_N, BLOCK_N)


@triton.jit
def _add_up(
    out, of_tile, row, column, m, n, splits, first, ROWS: tl.constexpr, SIZE: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    """Adds ROWS rows of a tile, from `first` on, in the order of K, and writes them."""
    down, along = first + tl.arange(0, ROWS), tl.arange(0, BLOCK_N)
    within = down[:, None] * BLOCK_N + along[None, :]
    total = tl.zeros([ROWS, BLOCK_N], tl.float32)
    for split in range(splits):
        total += tl.load(of_tile + split * SIZE + within, cache_modifier=".cg")
    to = out + (row + down).to(tl.int64)[:, None] * n + (column + along)[None, :]
    tl.store(to, total.to(out.dtype.element_ty), mask=(row + down < m)[:, None] & (column + along < n)[None, :])
