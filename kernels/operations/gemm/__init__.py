"""GEMM: the product of two matrices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from kernels.catalog import operation
from kernels.operations.base import (
    CUT_OFF,
    EDGE_SIZES,
    SYSTEMATIC,
    Allowance,
    Distribution,
    Inputs,
    Operation,
    Piece,
    draw,
)

if TYPE_CHECKING:
    import torch

FLOAT64_PRODUCTS = 2**30
"""Most multiply-adds of a product that float64 checks completely."""
SAMPLED_ROWS = 256
"""Above that, float64 checks this many rows."""
CHUNK = 2**24
"""Elements of a chunk of rows in a complete check: 64 MiB in float32."""
SLICE = 256
"""Terms per slice of the yardstick's sum for 16-bit inputs."""
FEW_TERMS = 8
"""tails: elements of a row of A that are not zero, on average. Sums of so few are as exact as their products."""


@operation("gemm", baseline="eager", title="Matrix product (GEMM)")
class Gemm(Operation):
    """a: (M, K); b: (K, N); out: (M, N), all row-major."""

    tensors: ClassVar[Mapping[str, tuple[str, ...]]] = {"a": ("m", "k"), "b": ("k", "n")}
    libraries: ClassVar[tuple[tuple[str, str], ...]] = (
        ("nvjet", "cuBLAS"),
        ("cublas", "cuBLAS"),
        ("cutlass", "cuBLAS (a CUTLASS kernel)"),
        ("gemvx", "cuBLAS (matrix by vector)"),
        ("mkldnn", "oneDNN"),
    )

    checked_with: ClassVar[tuple[Distribution, ...]] = ("normal", "tiny", "outliers", "x30", "uniform")

    m: int = Field(ge=1, le=262_144, title="M", description="Rows of A and of the product.")
    n: int = Field(ge=1, le=262_144, title="N", description="Columns of B and of the product.")
    k: int = Field(ge=1, le=262_144, title="K", description="Columns of A and rows of B.")

    @property
    def distributions(self) -> tuple[Distribution, ...]:
        """In float32, tails too: they tell products of split numbers from float32's."""
        return ("normal", "tails", *self.checked_with[1:]) if self.dtype == "float32" else self.checked_with

    @property
    def allowance(self) -> Allowance:
        return Allowance(slope=SYSTEMATIC + CUT_OFF * self.k)

    def label(self) -> str:
        return f"M={self.m} N={self.n} K={self.k}"

    def flops(self) -> int:
        """2MNK"""
        return 2 * self.m * self.n * self.k

    def flops_formula(self) -> tuple[str, str]:
        return "2 x M x N x K", f"2 x {self.m} x {self.n} x {self.k}"

    def bytes_moved(self) -> tuple[int, int]:
        """Reads A and B; writes the product."""
        size = self.element_bytes
        return (self.m + self.n) * self.k * size, self.m * self.n * size

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        shapes = ((self.m, self.k), (self.k, self.n))
        a, b = (draw(shape, self.dtype, device, generator, distribution) for shape in shapes)
        if distribution == "tails":
            a *= torch.rand(*a.shape, generator=generator, device=device) < FEW_TERMS / self.k
        return Inputs((a, b), {})

    def edges(self) -> list[Gemm]:
        """Each size at an edge, combined with others that are not."""
        one_each = [{name: size} for name in ("m", "n", "k") for size in EDGE_SIZES]
        return [Gemm(dtype=self.dtype, **{"m": 64, "n": 64, "k": 64} | changed) for changed in one_each]

    def output_like(self, inputs: Inputs) -> tuple[tuple[int, ...], torch.dtype]:
        a, b = inputs.tensors
        return (a.shape[0], b.shape[1]), a.dtype

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        import torch

        a, b = inputs.tensors
        if self.m * self.n * self.k <= FLOAT64_PRODUCTS:
            yield _piece(..., a, b, torch.float64)
            return
        rng = torch.Generator().manual_seed(seed)
        rows = torch.randperm(self.m, generator=rng)[:SAMPLED_ROWS].sort().values.to(a.device)
        yield _piece(rows, a, b, torch.float64)
        if thorough:
            # float32 is exact enough for 16-bit results; float32 results need float64.
            exact_dtype = torch.float64 if a.dtype == torch.float32 else torch.float32
            step = max(1, CHUNK // self.n)
            for first in range(0, self.m, step):
                yield _piece(slice(first, first + step), a, b, exact_dtype)


def _piece(
    where: torch.Tensor | slice | type(...), a: torch.Tensor, b: torch.Tensor, exact_dtype: torch.dtype
) -> Piece:
    with _without_tf32():
        return Piece(where, a[where].to(exact_dtype) @ b.to(exact_dtype), _yardstick(a[where], b))


def _yardstick(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Sums in float32, slice by slice of K, rounded at the end. No library sums like this, so none judges itself.

    float32: term by term, the longest chain of roundings that a kernel may have. 16 bits: the last rounding dominates.
    """
    import torch

    step = 1 if a.dtype == torch.float32 else SLICE
    sums = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float32, device=a.device)
    for first in range(0, a.shape[1], step):
        sums.addmm_(a[:, first : first + step].float(), b[first : first + step].float())
    return sums.to(a.dtype)


@contextlib.contextmanager
def _without_tf32() -> Iterator[None]:
    """Disables tf32, whatever a kernel of this process has set."""
    import torch

    matmul = torch.backends.cuda.matmul
    before, matmul.fp32_precision = matmul.fp32_precision, "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = before
