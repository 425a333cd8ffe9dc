"""Systematic errors: how far an output is too large, or too small, by one factor. Numbers, no judgement.

The slope of a row is <out - ref, ref> / <ref, ref>. Errors of rounding have either sign, so the mean slope of many rows
is close to 0; an error in a scale or in a statistic moves all rows the same way.
"""

from __future__ import annotations

import math

import torch

from kernels.child.scalars import Scalars

FEWEST = 16
"""Rows, and elements of a row, that a standard error needs."""
SMALL = 1e-3
"""A row whose squared norm is below this share of the mean counts for less: its slope may be any number."""


class Slope:
    """Accumulates the slopes of the rows (last dimension) of one output."""

    def __init__(self) -> None:
        self.rows = 0
        self.sum = self.squares = 0.0
        self.columns: torch.Tensor | None = None

    def add(self, error: torch.Tensor, right: torch.Tensor, weights: torch.Tensor, scalars: Scalars) -> None:
        """weights: of each row."""
        products = (error * right).to(torch.float64).flatten(0, -2)
        slopes, columns = products.sum(-1) * weights, weights @ products
        self.rows += slopes.numel()
        scalars.add(self._add_sum, slopes.sum())
        scalars.add(self._add_squares, slopes.square().sum())
        self.columns = columns if self.columns is None else self.columns + columns

    def _add_sum(self, more: float) -> None:
        self.sum += more

    def _add_squares(self, more: float) -> None:
        self.squares += more

    @property
    def mean(self) -> float:
        return self.sum / self.rows

    @property
    def rms(self) -> float:
        return math.sqrt(self.squares / self.rows)

    @property
    def error(self) -> float:
        """Standard error of the mean. Errors may be shared along a row, or along a column: the larger of both counts
        (clusters: Liang and Zeger, 1986)."""
        assert self.columns is not None
        by_row = max(0.0, self.squares / self.rows - self.mean**2) / (self.rows - 1)
        count = self.columns.numel()
        by_column = float(self.columns.var()) * count / self.rows**2
        return math.sqrt(max(by_row, by_column))


class Slopes:
    """Slopes of a kernel's output and of the yardstick. No reading for short rows, and for few."""

    def __init__(self) -> None:
        self.kernel, self.yard = Slope(), Slope()

    def add(
        self,
        error: torch.Tensor,
        yard: torch.Tensor,
        right: torch.Tensor,
        norms: torch.Tensor,
        scalars: Scalars,
    ) -> None:
        """Signed errors and the correct values of one piece; norms: of the correct rows, in float64. The slopes are known once
        `scalars` are read."""
        if right.ndim < 2 or right.shape[-1] < FEWEST:
            return
        squared = norms.square().flatten()
        weights = 1 / torch.maximum(squared, (SMALL * squared.mean()).clamp_min(1e-300))
        for slope, values in ((self.kernel, error), (self.yard, yard)):
            slope.add(values, right, weights, scalars)

    def reading(self, rows_alone: bool) -> dict[str, float]:
        """slope, yard_slope: mean relative error along the correct values. slope_error, yard_slope_error: standard
        errors. With rows_alone: slope_rms, yard_slope_rms of the rows."""
        kernel, yard = self.kernel, self.yard
        if kernel.rows < FEWEST or not all(map(math.isfinite, (kernel.squares, yard.squares))):
            return {}
        found = {"slope": kernel.mean, "slope_error": kernel.error}
        found |= {"yard_slope": yard.mean, "yard_slope_error": yard.error}
        return found | ({"slope_rms": kernel.rms, "yard_slope_rms": yard.rms} if rows_alone else {})
