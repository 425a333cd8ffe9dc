"""RMSNorm, forward: row / root mean square of the row * weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from kernels.catalog import operation
from kernels.operations.base import SYSTEMATIC, Allowance, Distribution, Inputs, Piece, draw
from kernels.operations.rows import Rows, enlarge_columns, sum_in_turn

if TYPE_CHECKING:
    import torch

EPS = 1e-6
AWAY_FROM_ONE = 0.7
"""normal: root mean square of x. At 1, rows are multiplied by almost 1, and a kernel that rounds them before it multiplies
by the weight has nearly the same rounding error in every element: by chance a row is then too large, or too small."""


@operation("rms_norm", baseline="functional", title="RMSNorm, forward")
class RMSNorm(Rows):
    """x: (rows, cols); weight: (cols,); out: (rows, cols). eps = 1e-6, added to the mean of squares."""

    tensors: ClassVar[Mapping[str, tuple[str, ...]]] = {"x": ("rows", "cols"), "weight": ("cols",)}
    options: ClassVar[tuple[str, ...]] = ("eps",)
    checked_with: ClassVar[tuple[Distribution, ...]] = (
        "normal", "tiny", "outliers", "large_mean", "x30", "uniform",
    )  # fmt: skip
    dominated: ClassVar[tuple[Distribution, ...]] = ("outliers",)
    normalises_rows: ClassVar[bool] = True
    operators: ClassVar[tuple[str, ...]] = ("rms_norm", "_fused_rms_norm", "square", "pow", "mean", "rsqrt", "mul")

    cols: int = Field(ge=1, le=1_048_576, title="Columns", description="The size that is normalised.")

    @property
    def allowance(self) -> Allowance:
        """Kernels may round the normalised row before the weight is multiplied."""
        return Allowance(slope=SYSTEMATIC, roundings=2)

    def flops(self) -> int:
        """4 per element (square, sum, two products): informative only; memory is the limit."""
        return 4 * self.rows * self.cols

    def flops_formula(self) -> tuple[str, str]:
        return "4 x rows x columns", f"4 x {self.rows} x {self.cols}"

    def bytes_moved(self) -> tuple[int, int]:
        """Reads x and weight; writes out."""
        size = self.element_bytes
        return (self.rows + 1) * self.cols * size, self.rows * self.cols * size

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        """outliers: sixteen columns are large, too. tiny: the mean of squares is about eps."""
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        x = draw((self.rows, self.cols), self.dtype, device, generator, distribution)
        if distribution == "normal":
            x *= AWAY_FROM_ONE
        elif distribution == "outliers":
            enlarge_columns(x, generator)
        of_weight = distribution if distribution in ("outliers", "x30") else "normal"
        return Inputs((x, draw((self.cols,), self.dtype, device, generator, of_weight)), {"eps": EPS})

    def output_like(self, inputs: Inputs) -> tuple[tuple[int, ...], torch.dtype]:
        return (self.rows, self.cols), inputs.tensors[0].dtype

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        """Every row, in float64, in chunks. The yardstick's mean: in float32 term by term."""
        import torch

        x, weight = inputs.tensors
        mean = _mean_in_turn if x.dtype == torch.float32 else _mean
        for where in self.chunks():
            exact = _normalised(x[where], weight, torch.float64, _mean)
            yield Piece(where, exact, _normalised(x[where], weight, torch.float32, mean).to(x.dtype))


def _normalised(
    x: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype, mean: Callable[..., torch.Tensor]
) -> torch.Tensor:
    """The definition, operator by operator, in a given dtype."""
    x = x.to(dtype)
    return x * (mean(x.square()) + EPS).rsqrt() * weight.to(dtype)


def _mean(x: torch.Tensor) -> torch.Tensor:
    return x.mean(-1, keepdim=True)


def _mean_in_turn(x: torch.Tensor) -> torch.Tensor:
    return sum_in_turn(x) / x.shape[-1]
