"""The errors of an output of floating-point numbers, and those of the yardstick. Numbers, no judgement."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from kernels.child.columns import Columns
from kernels.child.exact import ExactErrors
from kernels.child.nonfinite import Nonfinite, rows_left
from kernels.child.nudges import error_of
from kernels.child.scalars import Scalars
from kernels.child.slope import Slopes
from kernels.dtypes import DTYPES, EVERY
from kernels.operations.base import Like, Piece

SHORTEST_ROW = 16
"""Shorter rows (last dimension) are not measured alone: one small number would make any relative error large."""
FEW, FEW_DOMINATED = 64, 2**15
"""Of an output with fewer elements, one seed's error is chance: the yardstick's is the largest of POOLED seeds. So is the
relative error of the whole where a few terms decide an output."""
POOLED = 8
CLOSE = 1e-2
"""Tolerance of "allclose 1e-2", absolute and relative."""
SMALL_NORMALS = 16
"""Correct values below so many times the smallest normal number may be rounded coarsely."""
NO_ENDS = (math.inf, -math.inf)


def errors_of(like: Like, distribution: str) -> Errors | ExactErrors:
    return (Errors if like[1].is_floating_point else ExactErrors)(like, distribution)


class Errors:
    """Accumulates the errors of one output, piece by piece: three questions to the device a piece, each of which waits for it."""

    def __init__(self, like: Like, distribution: str) -> None:
        self.shape, self.dtype = like
        self.distribution = distribution
        self.totals = dict.fromkeys(("max_abs", "yard_abs", "rounding", "largest", "row", "yard_row"), 0.0)
        self.squares = dict.fromkeys(("error", "yard", "reference", "rounded"), 0.0)
        self.nonfinite, self.close = 0, True
        self.special = Nonfinite()
        self.slopes, self.columns = Slopes(), Columns()
        self.alone: dict[str, list[float]] = {}
        self.seen, self.wanted = NO_ENDS, NO_ENDS

    def add(self, piece: Piece, out: torch.Tensor) -> None:
        """Adds a piece. It moves far more memory than the kernel did: values are read as seldom as they can be."""
        right, got = piece.reference, out[piece.index]
        signed, yard = (error_of(one.to(right.dtype), right, piece.nudged) for one in (got, piece.yardstick))
        if piece.alone:
            self._add_alone(piece.alone, signed, yard, right)
            return
        seen, known, worst, allowed = _ends(got, right, signed, yard)
        wanted = right
        if not all(map(math.isfinite, known)):
            kept = self.special.kept(right, piece.yardstick, got)
            got, wanted = got[kept], right[kept]
            if not wanted.numel():
                return
            right, signed, yard = (rows_left(one, kept) for one in (right, signed, yard))
            seen, known, worst, allowed = _ends(got, right, signed, yard)
        self._add_rounding(wanted)
        self.seen = _wider(self.seen, seen)
        are_finite = all(map(math.isfinite, (*seen, *known)))
        if not are_finite:
            self.nonfinite += int((~torch.isfinite(got) & torch.isfinite(wanted)).sum())
        self._at_least("largest", _farthest(known))
        self._at_least("yard_abs", _farthest(allowed))
        self._at_least("max_abs", math.inf if math.isnan(worst[0]) else _farthest(worst))
        is_normal = self.distribution == "normal"
        if is_normal and 0 < _farthest(known) < SMALL_NORMALS * torch.finfo(self.dtype).tiny:
            self._add_rounded(right)
        self._add_sums(signed, yard, right, are_finite, is_normal)

    def _add_rounding(self, right: torch.Tensor) -> None:
        """What the dtype of the output makes of correct values."""
        wide = torch.float32 if self.dtype.itemsize < 4 else right.dtype
        rounded = right.to(self.dtype)
        shaken = ((rounded + 0.3) - 0.3).to(wide) - rounded.to(wide)
        wanted, lost = _ends(rounded, shaken)
        self.wanted = _wider(self.wanted, wanted)
        self._at_least("rounding", _farthest(lost))
        if rounded is not right:
            rounded.fill_(math.nan)  # freed memory must not look like a kernel's work

    def _add_rounded(self, right: torch.Tensor) -> None:
        """Of values near the dtype's smallest normal number, which it rounds coarsely: the error of rounding alone."""
        lost = right.to(self.dtype).to(right.dtype) - right
        self.squares["rounded"] += float(torch.linalg.vector_norm(lost, dtype=torch.float64).square())

    def _add_sums(
        self, signed: torch.Tensor, yard: torch.Tensor, right: torch.Tensor, are_finite: bool, is_normal: bool
    ) -> None:
        """Of the whole, of rows where they are long enough, and of columns. Changes `signed`."""
        scalars = Scalars()
        norms = self._add_rows(signed if are_finite else torch.nan_to_num(signed, nan=math.inf), yard, right, scalars)
        if is_normal and norms is not None:
            self.slopes.add(signed, yard, right, norms, scalars)
            self.columns.add(signed, yard, right)
        if self.close and not self.totals["max_abs"] <= CLOSE:
            error = signed.abs_() if are_finite else torch.nan_to_num(signed.abs_(), nan=math.inf)
            scalars.add(self._is_close, error.sub_(right.abs(), alpha=CLOSE).max())
        scalars.read()

    def _is_close(self, farthest: float) -> None:
        """farthest: the largest difference of an error and what is allowed relative to its correct value."""
        self.close = farthest <= CLOSE

    def _add_rows(
        self, error: torch.Tensor, yard: torch.Tensor, right: torch.Tensor, scalars: Scalars
    ) -> torch.Tensor | None:
        """Squared norms, of rows (last dimension) where they are long enough. Returns those of the correct rows."""
        along = {"dim": -1} if right.ndim and right.shape[-1] >= SHORTEST_ROW else {}
        norms = [torch.linalg.vector_norm(one, dtype=torch.float64, **along) for one in (error, yard, right)]
        for name, values in zip(("error", "yard", "reference"), norms, strict=True):
            scalars.add(partial(self._add_square, name), values.square().sum())
        if not along:
            return None
        least = norms[2].clamp_min(1e-30)
        for name, values in zip(("row", "yard_row"), norms, strict=False):
            scalars.add(partial(self._at_least, name), (values / least).max())
        return norms[2]

    def _add_alone(self, name: str, error: torch.Tensor, yard_error: torch.Tensor, right: torch.Tensor) -> None:
        sums = self.alone.setdefault(name, [0.0, 0.0, 0.0])
        for number, values in enumerate((torch.nan_to_num(error, nan=math.inf), yard_error, right)):
            sums[number] += float(values.square().sum(dtype=torch.float64))

    def _add_square(self, name: str, more: float) -> None:
        self.squares[name] += more
        if name == "error" and math.isnan(more):  # of a device that leaves a NaN out of the ends
            self.totals["max_abs"] = math.inf

    def _at_least(self, name: str, value: float) -> None:
        self.totals[name] = max(self.totals[name], value)

    def reading(self, reference: Any, number: int) -> dict[str, Any]:
        problem, scale = reference.problem, math.sqrt(self.squares["reference"]) or 1.0
        slope_allowed, roundings, terms = problem.allowance
        found = self.totals | {
            "distribution": self.distribution,
            "elements": math.prod(self.shape) - self.special.places,
            "fits": self.totals["largest"] < torch.finfo(self.dtype).max / 2,
            "frobenius": math.sqrt(self.squares["error"]) / scale,
            "yard_frobenius": math.sqrt(self.squares["yard"]) / scale,
            "rounded_frobenius": math.sqrt(self.squares["rounded"]) / scale,
            "nonfinite": self.nonfinite,
            "allclose_1e-2": self.close,
            "constant": self.seen[0] == self.seen[1] and self.wanted[0] != self.wanted[1],
            "dominated": self.distribution in problem.dominated,
            "roundings": roundings,
            "terms": terms,
        }
        found |= self.columns.reading() | self.special.reading()
        if slopes := self.slopes.reading(problem.normalises_rows):
            found |= slopes | {"slope_allowed": slope_allowed}
        if self.alone:
            found["alone"] = {
                name: [math.sqrt(part / (right or 1.0)) for part in (error, yard)]
                for name, (error, yard, right) in self.alone.items()
            }
        if self.shape == ():
            found["eps"] = torch.finfo(self.dtype).eps
        if math.prod(self.shape) < FEW:
            found["pooled"] = POOLED
            pooled = reference.pooled()[number]
            found |= {name: max(found[name], pooled[name]) for name in ("yard_abs", "largest")}
        elif found["dominated"] and math.prod(self.shape) < FEW_DOMINATED and not math.isnan(found["yard_frobenius"]):
            found["yard_frobenius"] = max(found["yard_frobenius"], reference.pooled()[number]["frobenius"])
        if (name := str(self.dtype).removeprefix("torch.")) in DTYPES and name != EVERY[problem.dtype].stored:
            found["dtype"] = name
        return found


def _ends(*tensors: torch.Tensor) -> list[tuple[float, float]]:
    """(smallest, largest) value of each; NaN if one is NaN. All are read at once."""
    ends = [one.to(torch.float64) for tensor in tensors for one in torch.aminmax(tensor)]
    read = iter(torch.stack(ends).tolist())
    return list(zip(read, read, strict=True))


def _farthest(ends: tuple[float, float]) -> float:
    """The largest absolute value."""
    return max(map(abs, ends))


def _wider(so_far: tuple[float, float], ends: tuple[float, float]) -> tuple[float, float]:
    return min(so_far[0], ends[0]), max(so_far[1], ends[1])
