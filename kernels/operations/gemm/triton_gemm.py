"""Matrix product in Triton: a program computes a tile of the product and streams slices of A and B past it.

Programs run in groups of rows of tiles, so that those in flight share A and B in L2. Sums are in float32. Partial tiles
are masked, or filled with zeros by the tensor memory accelerator. Tile shapes come from the table beside this file, else from
`tiles`, whose numbers were found on an H200: nothing is tuned while a kernel runs.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.catalog import Unsupported, cuda, kernel

MOST_SUMS = 64 * 256 // 4
"""Sums of a warp: more would not stay in registers."""
GROUP = 8
"""Rows of tiles shared by programs in flight."""


class Tile(NamedTuple):
    """The tile shape and settings of a launch."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    """Slices of A and of B in shared memory at a time."""
    tma: bool = False
    """Loads slices and stores tiles by the tensor memory accelerator (Hopper and later), if alignment permits."""
    persistent: bool = False
    """One program per processor computes tile after tile, and loads the next one while it stores the last."""


class Device(NamedTuple):
    """What the choice of a tile depends on."""

    processors: int
    shared_bytes: int
    """Shared memory available to one program."""
    tma: bool


def tiles(m, n, device):
    """The tile for an m x n product: the largest that still gives every processor one. Measured where `deep`; the
    others are guesses."""
    small = device.shared_bytes < 160 * 1024  # compute capability 8.6, 8.9 and 12.x: 99 KiB
    deep = device.tma and not small
    if min(m, n) <= 16:  # one or a few vectors: B (or A) is read once, at memory speed
        if m > n:
            return Tile(64, 16, 128, 4, 4)
        return Tile(16, 64, 256, 4, 4, True) if deep else Tile(16, 64, 128, 4, 4)
    if small:
        return Tile(128, 128, 32, 8, 3) if _count(m, n, 128, 128) >= device.processors else Tile(64, 64, 32, 4, 3)
    largest = _count(m, n, 128, 256)
    if largest >= 2 * device.processors:
        return Tile(128, 256, 64, 8, 3, device.tma, device.tma)
    if 0.9 * device.processors <= largest <= device.processors:  # almost every processor has one tile, none has two
        return Tile(128, 256, 64, 8, 3, device.tma)
    if _count(m, n, 128, 128) >= device.processors:
        return Tile(128, 128, 64, 8, 4, device.tma)
    if _count(m, n, 64, 128) >= device.processors // 2:
        return Tile(64, 128, 128, 4, 4, True) if deep else Tile(64, 128, 64, 4, 4)
    return Tile(64, 64, 64, 4, 4, device.tma)


def _count(m, n, block_m, block_n):
    return triton.cdiv(m, block_m) * triton.cdiv(n, block_n)


@kernel(
    "gemm", backend="triton", dtypes=("float16", "bfloat16"), needs=cuda(min_capability=8.0), limits={"batch": (1,)},
    space={
        "block_m": (16, 64, 128, 256), "block_n": (16, 32, 64, 128, 256), "block_k": (32, 64, 128, 256), "warps": (4, 8),
        "stages": (2, 3, 4, 5), "tma": (False, True), "persistent": (False, True),
    },
)  # fmt: skip
def triton_gemm(a, b, *, settings=None):
    """Tiled matrix product in Triton, float32 sums, tiles from a table."""
    device = _device(a.device)
    return launch(a, b, fitting(Tile(**settings), device) if settings else tiles(a.shape[0], b.shape[-1], device))


def fitting(tile, device):
    """The tile, if registers and shared memory of a device can hold it. Raises Unsupported."""
    if tile.tma and not device.tma:
        raise Unsupported("this device has no tensor memory accelerator")
    if (sums := tile.block_m * tile.block_n) > MOST_SUMS * tile.warps:
        raise Unsupported(f"{sums // (32 * tile.warps)} sums a thread; this kernel does {MOST_SUMS // 32}")
    leftover = 2 * sums if tile.persistent else 0
    needed = 2 * (tile.block_m + tile.block_n) * tile.block_k * tile.stages + leftover + 1024
    if needed > device.shared_bytes:
        raise Unsupported(f"needs {needed} bytes of shared memory, this device has {device.shared_bytes}")
    return tile


def launch(a, b, tile):
    """The product of a (M, K) and b (K, N) with a given tile. Returns a new, contiguous (M, N)."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise Unsupported(f"a and b are {tuple(a.shape)} and {tuple(b.shape)}; needs (M, K) and (K, N)")
    if a.dtype not in (torch.float16, torch.bfloat16) or b.dtype != a.dtype:
        raise Unsupported(f"dtypes are {a.dtype} and {b.dtype}; this kernel does both float16 or both bfloat16")
    a, b = (x if x.stride(1) == 1 else x.contiguous() for x in (a, b))
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    tma = tile.tma and all(_fits_descriptor(x) for x in (a, b, out))
    count = _count(m, n, tile.block_m, tile.block_n)
    with torch.cuda.device_of(a):  # Triton launches on the current device, which may not be the tensors'
        _gemm[(min(count, _device(a.device).processors) if tile.persistent else count,)](
            TensorDescriptor.from_tensor(a, [tile.block_m, tile.block_k]) if tma else a,
            TensorDescriptor.from_tensor(b, [tile.block_k, tile.block_n]) if tma else b,
            TensorDescriptor.from_tensor(out, [tile.block_m, tile.block_n]) if tma else out,
            a.stride(0), b.stride(0), m, n, k,
            BLOCK_M=tile.block_m, BLOCK_N=tile.block_n, BLOCK_K=tile.block_k, GROUP=GROUP,
            EVEN=m % tile.block_m == 0 and n % tile.block_n == 0, EVEN_K=k % tile.block_k == 0,
            TMA=tma, PERSISTENT=tile.persistent, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    return out


@cache
def _device(device):
    if device.type != "cuda":  # Triton's interpreter works on the CPU, where any tile works
        return Device(processors=132, shared_bytes=227 * 1024, tma=True)
    properties = torch.cuda.get_device_properties(device)
    return Device(properties.multi_processor_count, properties.shared_memory_per_block_optin, properties.major >= 9)


def _fits_descriptor(x):
    """A descriptor needs its base and its rows aligned to 16 bytes."""
    return x.data_ptr() % 16 == 0 and x.stride(0) > 0 and x.stride(0) * x.element_size() % 16 == 0


@triton.jit(do_not_specialize=["m"])
def _gemm(
    a, b, out, a_stride, b_stride, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN: tl.constexpr, EVEN_K: tl.constexpr, TMA: tl.constexpr, PERSISTENT: tl.constexpr,
):  # fmt: skip
    """One tile, or all tiles of this program. EVEN: no tile reaches past M or N. EVEN_K: no slice reaches past K."""
    if PERSISTENT:
        count = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
        for tile in tl.range(tl.program_id(0), count, tl.num_programs(0), flatten=True):
            _tile(
                tile, a, b, out, a_stride, b_stride, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, EVEN, EVEN_K, TMA
            )  # fmt: skip
    else:
        _tile(
            tl.program_id(0), a, b, out, a_stride, b_stride, m, n, k,
            BLOCK_M, BLOCK_N, BLOCK_K, GROUP, EVEN, EVEN_K, TMA,
        )  # fmt: skip


@triton.jit
def _tile(
    tile, a, b, out, a_stride, b_stride, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN: tl.constexpr, EVEN_K: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Tiles are numbered down GROUP rows of tiles, then along: the last group may have fewer rows."""
    of_a_group = GROUP * tl.cdiv(n, BLOCK_N)
    top = tile // of_a_group * GROUP
    height = tl.minimum(tl.cdiv(m, BLOCK_M) - top, GROUP)
    first_row = (top + tile % of_a_group % height) * BLOCK_M
    first_col = tile % of_a_group // height * BLOCK_N

    row, col, depth = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, k, BLOCK_K):
        if TMA:
            a_slice = a.load([first_row, start])
            b_slice = b.load([start, first_col])
        else:
            a_slice = _block(a, a_stride, first_row, start, row, depth, m, k, EVEN, EVEN_K)
            b_slice = _block(b, b_stride, start, first_col, depth, col, k, n, EVEN_K, EVEN)
        sums = tl.dot(a_slice, b_slice, sums)

    result = sums.to(out.dtype) if TMA else sums.to(out.dtype.element_ty)
    if TMA:
        out.store([first_row, first_col], result)
    else:
        to = out + tl.cast(first_row, tl.int64) * n + first_col + row[:, None] * n + col[None, :]
        if EVEN:
            tl.store(to, result)
        else:
            tl.store(to, result, mask=(first_row + row < m)[:, None] & (first_col + col < n)[None, :])


@triton.jit
def _block(x, stride, first_row, first_col, row, col, rows, cols, EVEN_ROWS: tl.constexpr, EVEN_COLS: tl.constexpr):
    """A block of a matrix; what lies outside is 0. Offsets are in 64 bits where they may not fit 32."""
    pointers = x + tl.cast(first_row, tl.int64) * stride + first_col + row[:, None] * stride + col[None, :]
    if EVEN_ROWS and EVEN_COLS:
        block = tl.load(pointers)
    elif EVEN_ROWS:
        block = tl.load(pointers, mask=(first_col + col < cols)[None, :], other=0.0)
    elif EVEN_COLS:
        block = tl.load(pointers, mask=(first_row + row < rows)[:, None], other=0.0)
    else:
        inside = (first_row + row < rows)[:, None] & (first_col + col < cols)[None, :]
        block = tl.load(pointers, mask=inside, other=0.0)
    return block
