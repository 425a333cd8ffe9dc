"""GELU in Triton: each program loads a stretch of x, 16 bytes a thread at a time, computes in float32, and stores it.

tanh comes from one exponential: (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), which neither overflows nor loses digits. The exact form
needs Phi(-|x|), the normal distribution below -|x|: exp(-x^2 / 2) times a polynomial of degree 8 in 1 / (1 + 0.31 |x|). The
polynomial was fitted here for the least relative error, 1.7e-7 for |x| up to 14. So the left tail keeps its digits, which
1 + erf(x) does not, and the branches of an erf for all x are saved.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.catalog import Unsupported, cuda, kernel

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class Tile(NamedTuple):
    """The tile shape of a launch."""

    block: int
    """Elements of a program: a power of two."""
    warps: int


def tiles(count, itemsize):
    """The tile for so many elements of so many bytes; none that was tried on an H200 was faster. In 16 bits, of the exact form:
    32 elements a thread at 16384 x 4096 (docs/measurements/row-tiles-h200-2026-11-25.jsonl), 16 at 16384 x 768, 8 at 262144 x 8
    (docs/measurements/gelu-tiles-16-bits-h200-2026-11-28.json); the bounds between them are chosen. In float32 4, at 16384 x 64
    and 16384 x 512 (docs/measurements/gelu-tiles-float32-h200-2026-11-28.json)."""
    if itemsize == 4:
        return Tile(512, 4)
    return Tile(1024, 1 if count >= 2**25 else 2 if count >= 2**23 else 4)


@kernel(
    "gelu", backend="triton", needs=cuda(min_capability=7.5),
    space={"block": (256, 512, 1024, 2048, 4096, 8192, 16384, 32768), "warps": (1, 2, 4, 8, 16)},
)  # fmt: skip
def triton_gelu(x, *, approximate, settings=None):
    """GELU in Triton, in float32, by one exponential: the normal distribution, or its form with tanh."""
    return launch(x, approximate, fitting(Tile(**settings)) if settings else tiles(x.numel(), x.element_size()))


def fitting(tile):
    """The tile, if a thread has 4 to 64 elements of it. Raises Unsupported."""
    if not 4 <= (each := tile.block / (32 * tile.warps)) <= 64:
        raise Unsupported(f"{each:g} elements a thread; this kernel does 4 to 64")
    return tile


def launch(x, approximate, tile):
    """GELU of x of any shape, with a given tile. Returns a new, contiguous tensor."""
    if x.dtype not in DTYPES:
        raise Unsupported(f"x is in {x.dtype}; this kernel does float16, bfloat16 and float32")
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count = x.numel()
    with torch.cuda.device_of(x):  # Triton launches on the current device, which need not be the tensor's
        _gelu[(triton.cdiv(count, tile.block),)](
            x, out, count, TANH=approximate == "tanh", BLOCK=tile.block, EVEN=count % tile.block == 0,
            num_warps=tile.warps,
        )  # fmt: skip
    return out


@triton.jit
def _gelu(x, out, count, TANH: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """BLOCK elements. EVEN promises that all of them exist."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        values = tl.load(x + place).to(tl.float32)
    else:
        values = tl.load(x + place, mask=place < count, other=0.0).to(tl.float32)
    if TANH:
        # -2 log2(e) sqrt(2 / pi) (x + 0.044715 x^3)
        power = values * (-2.302208198144325 - 0.1029432395800235 * values * values)
        result = values / (1.0 + tl.exp2(power))
    else:
        below = _below(values)
        result = values * tl.where(values >= 0, 1.0 - below, below)
    if EVEN:
        tl.store(out + place, result.to(out.dtype.element_ty))
    else:
        tl.store(out + place, result.to(out.dtype.element_ty), mask=place < count)


@triton.jit
def _below(x):
    """Phi(-|x|)."""
    u = 1.0 / (1.0 + 0.31 * tl.abs(x))
    series = 0.0358417784 * u - 0.14160479
    series = series * u + 0.15506817
    series = series * u - 0.0149036436
    series = series * u + 0.110110251
    series = series * u + 0.107771061
    series = series * u + 0.124060345
    series = series * u + 0.12365691
    return series * u * tl.exp2(x * x * -0.7213475204444817)
