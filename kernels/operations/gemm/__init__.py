"""GEMM: the product of two matrices, or of a batch of pairs; either may be stored transposed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, model_validator

from kernels.catalog import operation
from kernels.dtypes import EVERY
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
SAMPLED_PAIRS, SAMPLED_ROWS = 8, 256
"""Above that, float64 checks this many pairs of a batch, and this many rows of each."""
CHUNK = 2**24
"""Elements of a chunk of rows in a complete check: 64 MiB in float32."""
SLICE = 256
"""Terms per slice of the yardstick's sum for 16-bit inputs."""
TF32, FP8 = "tf32", "float8_e4m3fn"
CUT = 2**13
"""tf32 has the bits of float32 but for the last 13."""
LARGEST_FP8 = 448.0
FP8_SLOPE = 2.0**-9
"""Largest systematic relative error of fp8: half a rounding of bfloat16. Tensor cores of Hopper add fp8 products with 14 bits."""
FP8_STEP = 16
"""K and N of fp8 are multiples of it."""
FEW_TERMS = 8
"""tails: elements of a row of A that are not zero, on average. Sums of so few are as exact as their products."""


@operation("gemm", baseline="eager", title="Matrix product (GEMM)")
class Gemm(Operation):
    """a: (M, K); b: (K, N); out: (M, N), all row-major. Of a batch above 1: (B, M, K), (B, K, N), (B, M, N).

    trans_a: a is stored as (K, M). trans_b: b is stored as (N, K).

    tf32: a and b are float32, and products need be as exact as those of tf32 only: kernels are told `tf32=True`. fp8: a and
    b are float8_e4m3fn, without scales, b is stored as (N, K), K and N are multiples of 16, as cuBLAS takes them, and out is
    bfloat16.
    """

    dtypes: ClassVar[tuple[str, ...]] = tuple(EVERY)

    tensors: ClassVar[Mapping[str, tuple[str, ...]]] = {"a": ("m", "k"), "b": ("k", "n")}
    options: ClassVar[tuple[str, ...]] = ("trans_a", "trans_b")
    later: ClassVar[tuple[str, ...]] = ("batch", "trans_a", "trans_b")
    on_request: ClassVar[Mapping[str, Any]] = {"trans_a": False, "trans_b": False}
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
    batch: int = Field(
        1,
        ge=1,
        le=65_536,
        title="Batch (B)",
        description="Pairs of matrices. Empty: one.",
        json_schema_extra={"may_be_empty": True},
    )
    trans_a: bool = Field(False, title="A transposed")
    trans_b: bool = Field(False, title="B transposed")

    @model_validator(mode="before")
    @classmethod
    def an_empty_batch_is_one(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("batch", 1) in (None, ""):
            return {name: value for name, value in values.items() if name != "batch"}
        return values

    @model_validator(mode="after")
    def fp8_is_stored_as_libraries_take_it(self) -> Gemm:
        if self.dtype == FP8 and not (self.batch == 1 and self.trans_b and not self.trans_a):
            raise ValueError(
                "in fp8 a batch is 1, A is stored as it is, and B transposed (trans_b), as cuBLAS takes them"
            )
        if self.dtype == FP8 and (self.k % FP8_STEP or self.n % FP8_STEP):
            raise ValueError(f"in fp8 K and N are multiples of {FP8_STEP}, as cuBLAS takes them")
        return self

    @property
    def distributions(self) -> tuple[Distribution, ...]:
        """In float32, tails too: they tell products of split numbers from float32's. In fp8 not tiny: it has no such
        numbers."""
        if self.dtype == FP8:
            return tuple(one for one in self.checked_with if one != "tiny")
        return ("normal", "tails", *self.checked_with[1:]) if self.dtype == "float32" else self.checked_with

    @property
    def allowance(self) -> Allowance:
        return Allowance(slope=FP8_SLOPE if self.dtype == FP8 else SYSTEMATIC + CUT_OFF * self.k)

    def label(self) -> str:
        batch = f"B={self.batch} " if self.batch > 1 else ""
        stored = f"{' A.T' if self.trans_a else ''}{' B.T' if self.trans_b else ''}"
        return f"{batch}M={self.m} N={self.n} K={self.k}{stored}"

    def flops(self) -> int:
        """2BMNK"""
        return 2 * self.batch * self.m * self.n * self.k

    def flops_formula(self) -> tuple[str, str]:
        numbers = f"{self.m} x {self.n} x {self.k}"
        return (
            ("2 x B x M x N x K", f"2 x {self.batch} x {numbers}")
            if self.batch > 1
            else ("2 x M x N x K", f"2 x {numbers}")
        )

    def bytes_moved(self) -> tuple[int, int]:
        """Reads A and B; writes the product."""
        written = 2 if self.dtype == FP8 else self.element_bytes
        return (self.m + self.n) * self.k * self.batch * self.element_bytes, self.m * self.n * self.batch * written

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        """Values do not depend on how they are stored."""
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        batch = (self.batch,) if self.batch > 1 else ()
        shapes = ((*batch, self.m, self.k), (*batch, self.k, self.n))
        drawn_as = "float32" if self.dtype == FP8 else self.dtype
        a, b = (draw(shape, drawn_as, device, generator, distribution) for shape in shapes)
        if distribution == "tails":
            a *= torch.rand(*a.shape, generator=generator, device=device) < FEW_TERMS / self.k
        stored = tuple(x.mT.contiguous() if trans else x for x, trans in ((a, self.trans_a), (b, self.trans_b)))
        if self.dtype == FP8:
            stored = tuple(x.clamp_(-LARGEST_FP8, LARGEST_FP8).to(torch.float8_e4m3fn) for x in stored)
        told = {name: True for name in self.on_request if getattr(self, name)}
        return Inputs(stored, told | ({"tf32": True} if self.dtype == TF32 else {}))

    def edges(self) -> list[Gemm]:
        """Each size at an edge, combined with others that are not; a batch of two at most. In fp8, K and N are the next
        sizes that it has."""
        one_each = [{name: size} for name in ("m", "n", "k") for size in EDGE_SIZES]
        if self.dtype == FP8:
            one_each = [
                {name: -(-size // FP8_STEP) * FP8_STEP if name in "nk" else size}
                for each in one_each
                for name, size in each.items()
            ]
        fixed = {"dtype": self.dtype, "batch": min(2, self.batch), "trans_a": self.trans_a, "trans_b": self.trans_b}
        return [Gemm(**fixed | {"m": 64, "n": 64, "k": 64} | changed) for changed in one_each]

    def _plain(self, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        """A as (..., M, K) and B as (..., K, N), however they are stored."""
        a, b = inputs.tensors
        return (a.mT if self.trans_a else a), (b.mT if self.trans_b else b)

    def output_like(self, inputs: Inputs) -> tuple[tuple[int, ...], torch.dtype]:
        import torch

        a, b = self._plain(inputs)
        return (*a.shape[:-1], b.shape[-1]), torch.bfloat16 if self.dtype == FP8 else a.dtype

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        import torch

        a, b = self._plain(inputs)
        if self.batch * self.m * self.n * self.k <= FLOAT64_PRODUCTS:
            yield self._piece(..., a, b, torch.float64)
            return
        rng = torch.Generator().manual_seed(seed)
        # float32 is exact enough for 16-bit results; float32 results need float64.
        exact_dtype = torch.float64 if a.dtype == torch.float32 else torch.float32
        step = max(1, CHUNK // self.n)
        for pair in torch.randperm(self.batch, generator=rng)[:SAMPLED_PAIRS].tolist() if self.batch > 1 else [None]:
            rows = torch.randperm(self.m, generator=rng)[:SAMPLED_ROWS].sort().values.to(a.device)
            yield self._piece(rows, a, b, torch.float64, pair)
        for pair in range(self.batch) if thorough and self.batch > 1 else [None] * thorough:
            for first in range(0, self.m, step):
                yield self._piece(slice(first, first + step), a, b, exact_dtype, pair)

    def _piece(
        self, where: Any, a: torch.Tensor, b: torch.Tensor, exact_dtype: torch.dtype, pair: int | None = None
    ) -> Piece:
        """Rows of the product, of one pair of a batch; `...` is all of it."""
        if pair is not None:
            a, b = a[pair], b[pair]
        index, rows = where if pair is None else (pair, where), a if where is ... else a[where]
        with _without_tf32():
            exact = rows.to(exact_dtype) @ b.to(exact_dtype)
            if self.dtype == TF32:
                return Piece(index, exact, _yardstick(_cut(rows), _cut(b), SLICE))
            if self.dtype == FP8:
                return Piece(index, exact, _yardstick(rows.bfloat16(), b.bfloat16(), SLICE))
            return Piece(index, exact, _yardstick(rows, b, 1 if self.dtype == "float32" else SLICE))


def _cut(x: torch.Tensor) -> torch.Tensor:
    """float32 without the bits that tf32 does not have: some hardware cuts them off, other rounds, which is more exact."""
    import torch

    return x.view(torch.int32).bitwise_and(-CUT).view(torch.float32)


def _yardstick(a: torch.Tensor, b: torch.Tensor, step: int) -> torch.Tensor:
    """Sums in float32, `step` terms of K at a time, rounded at the end. No library sums like this, so none judges itself.

    float32: term by term, the longest chain of roundings that a kernel may have. Otherwise: a slice at a time, since the last
    rounding, or that of the inputs, dominates.
    """
    import torch

    sums = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=torch.float32, device=a.device)
    add = sums.addmm_ if a.dim() == 2 else sums.baddbmm_
    for first in range(0, a.shape[-1], step):
        add(a[..., first : first + step].float(), b[..., first : first + step, :].float())
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
