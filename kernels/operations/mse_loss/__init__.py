"""Mean squared error: the mean of (values - targets)^2 over all elements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from kernels.catalog import operation
from kernels.dtypes import EVERY
from kernels.operations.base import NEAR, Distribution, Inputs, Piece, draw
from kernels.operations.rows import Rows, sum_in_turn, total_in_turn

if TYPE_CHECKING:
    import torch

LOSS_BYTES = 4
SINGLE_BITS = 12
"""single: bits behind the point that the one term has, at most, before it is multiplied by a power of 2."""
MOST_DOUBLED = 14
"""float16 holds numbers up to 65,504."""


@operation("mse_loss", baseline="functional", title="Mean squared error")
class MSELoss(Rows):
    """values, targets: (rows, cols); out: (), float32, the mean over all elements.

    float32 in every dtype: a loss in 16 bits would not show a wrong row.
    """

    tensors: ClassVar[Mapping[str, tuple[str, ...]]] = {"values": ("rows", "cols"), "targets": ("rows", "cols")}
    checked_with: ClassVar[tuple[Distribution, ...]] = (
        "normal", "large_mean", "single", "tiny", "x30", "outliers", "uniform",
    )  # fmt: skip
    operators: ClassVar[tuple[str, ...]] = ("mse_loss", "sub", "square", "pow", "mean")

    cols: int = Field(ge=1, le=1_048_576, title="Columns")

    def flops(self) -> int:
        """3 per element (subtraction, product, sum): informative only; memory is the limit."""
        return 3 * self.rows * self.cols

    def flops_formula(self) -> tuple[str, str]:
        return "3 x rows x columns", f"3 x {self.rows} x {self.cols}"

    def bytes_moved(self) -> tuple[int, int]:
        """Reads values and targets; writes one number."""
        return 2 * self.rows * self.cols * self.element_bytes, LOSS_BYTES

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        """large_mean: the targets differ from the values by N(0, 1/256) only, as at the end of a training."""
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        shape = (self.rows, self.cols)
        values = draw(shape, self.dtype, device, generator, distribution)
        if distribution == "single":
            targets = values.clone()
            self._leave_one_term(values.flatten(), targets.flatten(), generator)
        elif distribution == "large_mean":
            targets = values + NEAR * draw(shape, self.dtype, device, generator)
        else:
            targets = draw(shape, self.dtype, device, generator, distribution)
        return Inputs((values, targets), {})

    def _leave_one_term(self, values: torch.Tensor, targets: torch.Tensor, generator: torch.Generator) -> None:
        """One element, drawn by chance, is so large that the mean is about 1, and its target slightly below 0: the difference
        needs two bits more than the dtype has. Every other element is its target."""
        import torch

        bits = min(SINGLE_BITS, EVERY[self.dtype].mantissa)
        place, value, target = (
            torch.randint(most, (1,), generator=generator, device=values.device)
            for most in (values.numel(), 2 ** (bits - 1), 2)
        )
        large = 2.0 ** min(values.numel().bit_length() // 2, MOST_DOUBLED)
        values[place] = (large * (1 + (2 * value + 1) * 2.0**-bits)).to(values.dtype)
        targets[place] = (-large * (2 * target + 1) * 2.0 ** -(bits + 2)).to(values.dtype)

    def output_like(self, inputs: Inputs) -> tuple[tuple[int, ...], torch.dtype]:
        import torch

        return (), torch.float32

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        """Every element, in float64, in chunks. The yardstick adds each row term by term, then the rows, in float32."""
        import torch

        values, targets = inputs.tensors
        exact: list[float] = []
        plain: list[float] = []
        for where in self.chunks():
            exact += (values[where].double() - targets[where].double()).square_().sum(-1).tolist()
            plain += sum_in_turn((values[where].float() - targets[where].float()).square_()).squeeze(-1).tolist()
        count, device = self.rows * self.cols, values.device
        of_yardstick = torch.tensor(total_in_turn(plain), dtype=torch.float32) / count
        mean = torch.tensor(math.fsum(exact) / count, dtype=torch.float64, device=device)
        yield Piece(..., mean, of_yardstick.to(device))
