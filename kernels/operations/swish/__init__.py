"""Swish, forward (SiLU): x times the logistic function of x."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from kernels.catalog import operation
from kernels.operations.base import SYSTEMATIC, Allowance, Distribution, Inputs, Piece, draw
from kernels.operations.rows import Rows

if TYPE_CHECKING:
    import torch


@operation("swish", baseline="functional", title="Swish (SiLU), forward")
class Swish(Rows):
    """x: (rows, cols); out: (rows, cols). x / (1 + exp(-x))."""

    tensors: ClassVar[Mapping[str, tuple[str, ...]]] = {"x": ("rows", "cols")}
    checked_with: ClassVar[tuple[Distribution, ...]] = ("normal", "negative", "x30", "tiny", "outliers", "uniform")
    operators: ClassVar[tuple[str, ...]] = ("silu", "sigmoid", "mul")

    cols: int = Field(ge=1, le=1_048_576, title="Columns")

    @property
    def allowance(self) -> Allowance:
        """The logistic function may be rounded before it is multiplied."""
        return Allowance(slope=SYSTEMATIC, roundings=2)

    def flops(self) -> int:
        """4 per element (exponential, sum, division, product): informative only; memory is the limit."""
        return 4 * self.rows * self.cols

    def flops_formula(self) -> tuple[str, str]:
        return "4 x rows x columns", f"4 x {self.rows} x {self.cols}"

    def bytes_moved(self) -> tuple[int, int]:
        """Reads x; writes out."""
        size = self.rows * self.cols * self.element_bytes
        return size, size

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        return Inputs((draw((self.rows, self.cols), self.dtype, device, generator, distribution),), {})

    def output_like(self, inputs: Inputs) -> tuple[tuple[int, ...], torch.dtype]:
        return (self.rows, self.cols), inputs.tensors[0].dtype

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        """Every row, in float64, in chunks. The yardstick is the definition in float32."""
        import torch

        (x,) = inputs.tensors
        for where in self.chunks():
            exact, plain = (_swish(x[where].to(dtype)) for dtype in (torch.float64, torch.float32))
            yield Piece(where, exact, plain.to(x.dtype))


def _swish(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + (-x).exp())
