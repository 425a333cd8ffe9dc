"""GELU, forward: x times the normal distribution function of x, exactly or by its approximation with tanh."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from kernels.catalog import operation
from kernels.dtypes import DTYPES
from kernels.operations.base import SYSTEMATIC, Allowance, Distribution, Inputs, Piece, draw
from kernels.operations.rows import Rows

if TYPE_CHECKING:
    import torch

CUBIC = 0.044715
"""Factor of x^3 in the approximation (Hendrycks and Gimpel, 2016)."""


@operation("gelu", baseline="functional", title="GELU, forward")
class Gelu(Rows):
    """x: (rows, cols); out: (rows, cols). approximate "none": x (1 + erf(x / sqrt(2))) / 2. "tanh":
    x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""

    tensors: ClassVar[Mapping[str, tuple[str, ...]]] = {"x": ("rows", "cols")}
    options: ClassVar[tuple[str, ...]] = ("approximate",)
    checked_with: ClassVar[tuple[Distribution, ...]] = ("normal", "negative", "x30", "tiny", "outliers", "uniform")
    operators: ClassVar[tuple[str, ...]] = ("gelu", "erf", "tanh", "mul", "add", "pow")

    cols: int = Field(ge=1, le=1_048_576, title="Columns")
    approximate: Literal["none", "tanh"] = Field("none", title="Approximation")

    @property
    def allowance(self) -> Allowance:
        """The normal distribution function may be rounded before it is multiplied. Its values are dense near 1, where
        roundings do not cancel."""
        return Allowance(slope=SYSTEMATIC + DTYPES[self.dtype].folded, roundings=2)

    def label(self) -> str:
        return f"{super().label()}{' tanh' if self.approximate == 'tanh' else ''}"

    def flops(self) -> int:
        """8 per element: informative only; memory is the limit."""
        return 8 * self.rows * self.cols

    def flops_formula(self) -> tuple[str, str]:
        return "8 x rows x columns", f"8 x {self.rows} x {self.cols}"

    def bytes_moved(self) -> tuple[int, int]:
        """Reads x; writes out."""
        size = self.rows * self.cols * self.element_bytes
        return size, size

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        x = draw((self.rows, self.cols), self.dtype, device, generator, distribution)
        return Inputs((x,), {"approximate": self.approximate})

    def output_like(self, inputs: Inputs) -> tuple[tuple[int, ...], torch.dtype]:
        return (self.rows, self.cols), inputs.tensors[0].dtype

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        """Every row, in float64, in chunks. The yardstick is the definition in float32."""
        import torch

        (x,) = inputs.tensors
        of = _with_tanh if self.approximate == "tanh" else _exact
        for where in self.chunks():
            yield Piece(where, of(x[where].to(torch.float64)), of(x[where].to(torch.float32)).to(x.dtype))


def _exact(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + (x * math.sqrt(0.5)).erf())


def _with_tanh(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + CUBIC * x**3)).tanh())
