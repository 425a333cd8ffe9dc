"""Softmax of each row: exp(row - its maximum), divided by the sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from kernels.catalog import operation
from kernels.operations.base import LARGE, Distribution, Inputs, Piece, draw
from kernels.operations.rows import Rows, sum_in_turn

if TYPE_CHECKING:
    import torch

SMALLEST_TILE, TILES = 4, 7
"""Tiles of 16 to 1,024 columns, as powers of 2."""


@operation("softmax", baseline="functional", title="Softmax of rows")
class Softmax(Rows):
    """x: (rows, cols); out: (rows, cols). Over the last dimension."""

    tensors: ClassVar[Mapping[str, tuple[str, ...]]] = {"x": ("rows", "cols")}
    checked_with: ClassVar[tuple[Distribution, ...]] = (
        "normal", "x30", "near_constant", "outliers", "large_mean", "single",
    )  # fmt: skip
    normalises_rows: ClassVar[bool] = True
    operators: ClassVar[tuple[str, ...]] = ("_softmax", "softmax", "amax", "exp", "sub", "sum", "div")

    cols: int = Field(ge=1, le=1_048_576, title="Columns", description="The size that is summed.")

    def flops(self) -> int:
        """5 per element (maximum, subtraction, exponential, sum, division): informative only; memory is the limit."""
        return 5 * self.rows * self.cols

    def flops_formula(self) -> tuple[str, str]:
        return "5 x rows x columns", f"5 x {self.rows} x {self.cols}"

    def bytes_moved(self) -> tuple[int, int]:
        """Reads x; writes out."""
        size = self.rows * self.cols * self.element_bytes
        return size, size

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        """outliers: one element in each eighth row, 300 times as large, in a column by chance, but the last: it decides its row,
        or is nothing in it, and no fixed row or column shows it. single: the same in the last column. large_mean: with a
        negative sign, so that a column that is not there, read as 0, would decide its row."""
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        if distribution in ("outliers", "single"):
            return Inputs((self._with_outliers(generator, device, distribution == "single"),), {})
        x = draw((self.rows, self.cols), self.dtype, device, generator, distribution)
        if distribution == "large_mean":
            x.neg_()
        return Inputs((x,), {})

    def _with_outliers(self, generator: torch.Generator, device: str, in_the_last_column: bool) -> torch.Tensor:
        """Single elements are large: in each eighth row the last one; or in each fourth row one at random, of which three in four
        stand where tiles end and begin, and are positive."""
        import torch

        x = draw((self.rows, self.cols), self.dtype, device, generator)
        every = min(8 if in_the_last_column else 4, self.rows)

        def among(count: int, size: int) -> torch.Tensor:
            return torch.randint(max(1, count), (size,), generator=generator, device=device)

        row = torch.arange(int(among(every, 1)), self.rows, every, device=device)
        if in_the_last_column:
            column = torch.full_like(row, self.cols - 1)
        else:
            size = len(row)
            tile = 2 ** (SMALLEST_TILE + among(TILES, size))
            edge = tile * (1 + among(self.cols, size) % (self.cols // tile).clamp_min(1)) - among(2, size)
            at_edge = (among(4, size) > 0) & (edge < self.cols - 1)
            column = torch.where(at_edge, edge, among(self.cols - 1, size))
            x[row, column] = torch.where(at_edge, 1 + x[row, column].abs(), x[row, column])
        x[row, column] *= 10 * LARGE
        return x

    def output_like(self, inputs: Inputs) -> tuple[tuple[int, ...], torch.dtype]:
        return (self.rows, self.cols), inputs.tensors[0].dtype

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        """Every row, in float64, in chunks. The yardstick of float32: a sum term by term, and exp(x - logsumexp), whose logarithm
        is rounded as coarsely as the largest element."""
        import torch

        (x,) = inputs.tensors
        for where in self.chunks():
            exact = x[where].double().softmax(-1)
            wide = x[where].float()
            largest = wide.amax(-1, keepdim=True)
            powers = (wide - largest).exp()
            if x.dtype == torch.float32:
                yield Piece(where, exact, (wide - (largest + sum_in_turn(powers).log())).exp())
            else:
                yield Piece(where, exact, (powers / powers.sum(-1, keepdim=True)).to(x.dtype))
