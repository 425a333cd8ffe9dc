"""The errors of an output of whole numbers or truth values: an element is right, or it is not."""

from __future__ import annotations

import math
from typing import Any

import torch

from kernels.child.nudges import SMALLEST_ANSWERS
from kernels.operations.base import Like, Piece

NARROW_BYTES = 2
"""Integers of at most this many bytes are levels (quantised values): being off by more is worse. Wider ones are often
indices, whose distance means nothing."""
MOST_PAIRS = 2**26
"""Numbers of an output times the length of its rows: above that, rows are not compared as sets."""


UNKNOWN = 0.001
"""Share of the elements that may differ, beyond those that the reference as it is written has wrong, where nobody knows what it
cannot decide: there was no time to find out."""


class ExactErrors:
    """Counts differing elements of one output, piece by piece."""

    def __init__(self, like: Like, distribution: str) -> None:
        self.dtype, self.distribution = like[1], distribution
        self.elements = self.mismatches = self.yard_mismatches = self.excused = 0
        self.undecided: int | None = None
        self.beyond: dict[str, list[int]] = {}
        self.max_abs = self.yard_abs = self.largest = 0.0
        self.seen, self.wanted = (math.inf, -math.inf), (math.inf, -math.inf)

    def add(self, piece: Piece, out: torch.Tensor) -> None:
        right, got, yard = piece.reference.to(self.dtype), out[piece.index], piece.yardstick.to(self.dtype)
        self.elements += right.numel()
        self.mismatches += int((got != right).sum())
        self.yard_mismatches += int((yard != right).sum())
        if piece.nudged is not None:
            self._add_nudged(got, right, yard, piece.nudged.to(self.dtype))
        self.max_abs = max(self.max_abs, _distance(got, right))
        self.yard_abs = max(self.yard_abs, _distance(yard, right))
        self.largest = max(self.largest, float(right.double().abs().max()))
        self.seen = min(self.seen[0], float(got.min())), max(self.seen[1], float(got.max()))
        self.wanted = min(self.wanted[0], float(right.min())), max(self.wanted[1], float(right.max()))

    def _add_nudged(self, got: torch.Tensor, right: torch.Tensor, yard: torch.Tensor, nudged: torch.Tensor) -> None:
        """Holds outputs to what nudged inputs give: whole outputs, one piece each."""
        if not len(nudged):
            self.excused += min(int((got != right).sum()), int(UNKNOWN * right.numel()))
            return
        self.excused += int(((got != right) & (nudged[:SMALLEST_ANSWERS] == got).any(0)).sum())
        certain = (nudged == right).all(0)
        self.undecided = (self.undecided or 0) + int((~certain).sum())
        if len(nudged) == SMALLEST_ANSWERS:
            return
        low, high = torch.minimum(nudged.amin(0), right), torch.maximum(nudged.amax(0), right)
        members = None if self.levels else _members(right, nudged)
        for one in (got, yard):
            wrong = one != right
            if self.levels:
                odd = (one < low) | (one > high)
            else:
                odd = wrong & ~(nudged == one).any(0)
            rows = odd.reshape(-1, odd.shape[-1] if odd.ndim > 1 else 1).sum(-1)
            counts = {"implausible": int(odd.sum()), "certain": int((wrong & certain).sum())}
            counts |= {"row": int(rows.max())} if len(rows) > 1 else {}
            counts |= {"missing": int((members & ~_among(right, one)).sum())} if members is not None else {}
            for name, count in counts.items():
                self.beyond.setdefault(name, []).append(count)

    @property
    def levels(self) -> bool:
        return self.dtype != torch.bool and self.dtype.itemsize <= NARROW_BYTES

    def reading(self, reference: Any, number: int) -> dict[str, Any]:
        """mismatches, yard_mismatches: elements that differ, of the output and of the yardstick. levels: the distance of
        two numbers counts, too. Other names: as for floating-point outputs; frobenius is the share that differs.

        Only with nudged answers (kernels/child/nudges.py): undecided: elements that nudges change. excused: mismatches that
        are right under the smallest nudges, or may be. beyond: [of the output, of the yardstick] of these elements. implausible:
        right under no nudge. row: those of the worst row. certain: wrong where no nudge changes anything. missing: not in
        their row, although all nudged answers have them there; only if no number is twice in a row.
        """
        count = max(1, self.elements)
        return {
            "distribution": self.distribution,
            "elements": self.elements,
            "mismatches": self.mismatches,
            "yard_mismatches": self.yard_mismatches,
            "levels": self.levels,
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
        } | self._of_nudges()

    def _of_nudges(self) -> dict[str, Any]:
        if self.undecided is None:
            return {"excused": self.excused} if self.excused else {}
        return {"undecided": self.undecided, "excused": self.excused, "beyond": self.beyond}


def _members(right: torch.Tensor, nudged: torch.Tensor) -> torch.Tensor | None:
    """Which numbers of each row are in that row of all answers; None if rows are no selections, or long."""
    length = right.shape[-1]
    if right.dtype == torch.bool or length < 2 or right.numel() * length > MOST_PAIRS:
        return None
    ordered = right.sort(-1).values
    if (ordered[..., 1:] == ordered[..., :-1]).any():
        return None
    found = torch.ones_like(right, dtype=torch.bool)
    for answer in nudged:
        found &= _among(right, answer)
    return found


def _among(numbers: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Which numbers are in the same row of the others."""
    return (numbers[..., :, None] == others[..., None, :]).any(-1)


def _distance(some: torch.Tensor, others: torch.Tensor) -> float:
    return float((some.double() - others.double()).abs().max())
