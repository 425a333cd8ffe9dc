"""The errors of an output of whole numbers or truth values: an element is right, or it is not."""

from __future__ import annotations

import math
from typing import Any

import torch

from kernels.operations.base import Like, Piece

NARROW_BYTES = 2
"""Integers of at most this many bytes are levels (quantised values): being off by more is worse. Wider ones are often
indices, whose distance means nothing."""


class ExactErrors:
    """Counts differing elements of one output, piece by piece."""

    def __init__(self, like: Like, distribution: str) -> None:
        self.dtype, self.distribution = like[1], distribution
        self.elements = self.mismatches = self.yard_mismatches = 0
        self.max_abs = self.yard_abs = self.largest = 0.0
        self.seen, self.wanted = (math.inf, -math.inf), (math.inf, -math.inf)

    def add(self, piece: Piece, out: torch.Tensor) -> None:
        right, got, yard = piece.reference.to(self.dtype), out[piece.index], piece.yardstick.to(self.dtype)
        self.elements += right.numel()
        self.mismatches += int((got != right).sum())
        self.yard_mismatches += int((yard != right).sum())
        self.max_abs = max(self.max_abs, _distance(got, right))
        self.yard_abs = max(self.yard_abs, _distance(yard, right))
        self.largest = max(self.largest, float(right.double().abs().max()))
        self.seen = min(self.seen[0], float(got.min())), max(self.seen[1], float(got.max()))
        self.wanted = min(self.wanted[0], float(right.min())), max(self.wanted[1], float(right.max()))

    def reading(self, reference: Any, number: int) -> dict[str, Any]:
        """mismatches, yard_mismatches: elements that differ, of the output and of the yardstick. levels: the distance of
        two numbers counts, too. Other names: as for floating-point outputs; frobenius is the share that differs."""
        count = max(1, self.elements)
        return {
            "distribution": self.distribution,
            "elements": self.elements,
            "mismatches": self.mismatches,
            "yard_mismatches": self.yard_mismatches,
            "levels": self.dtype != torch.bool and self.dtype.itemsize <= NARROW_BYTES,
            "max_abs": self.max_abs,
            "yard_abs": self.yard_abs,
            "largest": self.largest,
            "frobenius": self.mismatches / count,
            "yard_frobenius": self.yard_mismatches / count,
            "row": 0.0,
            "yard_row": 0.0,
            "rounding": 0.0,
            "nonfinite": 0,
            "fits": True,
            "allclose_1e-2": not self.mismatches,
            "constant": self.seen[0] == self.seen[1] and self.wanted[0] != self.wanted[1],
        }


def _distance(some: torch.Tensor, others: torch.Tensor) -> float:
    return float((some.double() - others.double()).abs().max())
