"""Errors of columns: the elements with one index in the last dimension. Numbers, no judgement.

A kernel may treat one column differently from the others, such as the last one of a tile. A small error there is invisible in
the whole output and in rows.
"""

from __future__ import annotations

import torch

FEWEST = 32
"""Rows that a column needs: one small number would make any relative error large."""


class Columns:
    """Accumulates, for each column, the squares of a kernel's errors, of the yardstick's errors and of the correct values."""

    def __init__(self) -> None:
        self.rows = 0
        self.squares: torch.Tensor | None = None

    def add(self, error: torch.Tensor, yard: torch.Tensor, right: torch.Tensor) -> None:
        """Signed errors and the correct values of one piece, each (..., columns)."""
        if right.ndim < 2:
            return
        self.rows += right.numel() // right.shape[-1]
        norms = [
            torch.linalg.vector_norm(one.flatten(0, -2), dim=0, dtype=torch.float64) for one in (error, yard, right)
        ]
        squares = torch.stack(norms).square()
        self.squares = squares if self.squares is None else self.squares + squares

    def reading(self) -> dict[str, float]:
        """column, yard_column: relative errors of the worst column. Empty for few rows."""
        if self.squares is None or self.rows < FEWEST:
            return {}
        error, yard, right = self.squares.sqrt()
        least = right.clamp_min(1e-30)
        return {"column": float((error / least).max()), "yard_column": float((yard / least).max())}
