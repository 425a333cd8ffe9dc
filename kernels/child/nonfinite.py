"""Elements whose correct value is NaN or infinite: an output must have the same there. Numbers, no judgement."""

from __future__ import annotations

import torch


class Nonfinite:
    """Counts such elements of one output, piece by piece."""

    def __init__(self) -> None:
        self.places = self.finite = self.other = 0

    def kept(self, right: torch.Tensor, yard: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
        """Which elements have a finite correct value, as truth values; counts the others. All three have one shape.

        An output may also be as the yardstick is: rounding decides whether that is finite.
        """
        kept = torch.isfinite(right)
        left, given, plain = right[~kept], got[~kept].to(right.dtype), yard[~kept].to(right.dtype)
        # A finite yardstick has rounded what the reference as it is written overflows: not any other number is right there.
        near = torch.isfinite(given) & (given.sign() == plain.sign()) & (2 * given.abs() > plain.abs())
        wrong = ~(_alike(given, left) | (_alike(given, plain) & (near | ~torch.isfinite(plain))))
        finite = int((wrong & torch.isfinite(given)).sum())
        self.places += left.numel()
        self.finite += finite
        self.other += int(wrong.sum()) - finite
        return kept

    def reading(self) -> dict[str, int]:
        """nonfinite_places: elements whose correct value is not finite. made_finite: of these, the output is finite.
        other_nonfinite: of these, the output has another of NaN, +Inf and -Inf. Empty if all correct values are finite."""
        if not self.places:
            return {}
        return {"nonfinite_places": self.places, "made_finite": self.finite, "other_nonfinite": self.other}


def _alike(some: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Where both are finite, NaN, +Inf or -Inf."""
    both_nan = torch.isnan(some) & torch.isnan(others)
    return both_nan | (some == others) | (torch.isfinite(some) & torch.isfinite(others))


def rows_left(values: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Values with 0 where they are not kept, without rows (last dimension) of which nothing is kept: these have no error."""
    values = torch.where(kept, values, torch.zeros((), dtype=values.dtype, device=values.device))
    return values.flatten(0, -2)[kept.flatten(0, -2).any(-1)] if values.ndim > 1 else values


def as_held(exact: torch.Tensor, plain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(correct values, yardstick) of an exact output and of the same output as the reference is written: infinite where that
    overflows its dtype.

    Where the exact value is just below the largest number, the yardstick is finite: rounding decides.
    """
    if not plain.is_floating_point() or torch.isfinite(plain).all():  # almost always
        return exact, plain
    held = exact.to(plain.dtype)
    large = exact.abs() > torch.finfo(plain.dtype).max / 2
    over = torch.isinf(plain) & large & (plain.sign() == exact.sign())
    return torch.where(over, plain.to(exact.dtype), exact), torch.where(over & torch.isfinite(held), held, plain)
