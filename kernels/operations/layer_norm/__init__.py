"""LayerNorm, forward: (row - mean) / standard deviation * weight + bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from kernels.catalog import operation
from kernels.operations.base import SYSTEMATIC, Allowance, Distribution, Inputs, Piece, draw
from kernels.operations.rows import Rows, enlarge_columns, sum_in_turn

if TYPE_CHECKING:
    import torch

EPS = 1e-5


@operation("layer_norm", baseline="eager", title="LayerNorm, forward")
class LayerNorm(Rows):
    """x: (rows, cols); weight, bias: (cols,); out: (rows, cols). Biased variance; eps = 1e-5."""

    tensors: ClassVar[Mapping[str, tuple[str, ...]]] = {"x": ("rows", "cols"), "weight": ("cols",), "bias": ("cols",)}
    options: ClassVar[tuple[str, ...]] = ("eps",)
    checked_with: ClassVar[tuple[Distribution, ...]] = (
        "normal", "tiny", "outliers", "near_constant", "large_mean", "x30",
    )  # fmt: skip
    dominated: ClassVar[tuple[Distribution, ...]] = ("outliers",)
    normalises_rows: ClassVar[bool] = True

    cols: int = Field(ge=1, le=1_048_576, title="Columns", description="The size that is normalised.")

    @property
    def allowance(self) -> Allowance:
        """Kernels may round the normalised row before the weight is multiplied."""
        return Allowance(slope=SYSTEMATIC, roundings=2)

    def flops(self) -> int:
        """8 per element: informative only; memory is the limit."""
        return 8 * self.rows * self.cols

    def flops_formula(self) -> tuple[str, str]:
        return "8 x rows x columns", f"8 x {self.rows} x {self.cols}"

    def bytes_moved(self) -> tuple[int, int]:
        """Reads x, weight and bias; writes out."""
        size = self.element_bytes
        return (self.rows + 2) * self.cols * size, self.rows * self.cols * size

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        x = draw((self.rows, self.cols), self.dtype, device, generator, distribution)
        if distribution == "outliers":
            enlarge_columns(x, generator)
        of_weights = distribution if distribution in ("outliers", "x30") else "normal"
        weight, bias = (draw((self.cols,), self.dtype, device, generator, of_weights) for _ in range(2))
        return Inputs((x, weight, bias), {"eps": EPS})

    def output_like(self, inputs: Inputs) -> tuple[tuple[int, ...], torch.dtype]:
        x = inputs.tensors[0]
        return tuple(x.shape), x.dtype

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        """Every row, in float64, in chunks."""
        import torch

        x, weight, bias = inputs.tensors
        for where in self.chunks():
            exact = _normalised(x[where], weight, bias, torch.float64, _mean)
            mean = _mean_in_turn if x.dtype == torch.float32 else _mean
            yield Piece(where, exact, _normalised(x[where], weight, bias, torch.float32, mean).to(x.dtype))


def _normalised(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, dtype: torch.dtype, mean: Callable[..., torch.Tensor]
) -> torch.Tensor:
    """The definition, operator by operator, in a given dtype."""
    x = x.to(dtype)
    centred = x - mean(x)
    variance = mean(centred.square())
    return centred * (variance + EPS).rsqrt() * weight.to(dtype) + bias.to(dtype)


def _mean(x: torch.Tensor) -> torch.Tensor:
    return x.mean(-1, keepdim=True)


def _mean_in_turn(x: torch.Tensor) -> torch.Tensor:
    return sum_in_turn(x) / x.shape[-1]
