"""Products of yardsticks: a @ b as plain PyTorch has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def yardstick_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b of a yardstick. 16 bits: as PyTorch computes it. float32: term by term, the longest chain of roundings that a
    kernel may have; the effect of a library's summation order varies more than twofold between shapes."""
    import torch

    if a.dtype != torch.float32:
        return a @ b
    sums = a.new_zeros(*a.shape[:-1], b.shape[-1])
    for term in range(a.shape[-1]):
        sums.addcmul_(a[..., term : term + 1], b[..., term : term + 1, :])
    return sums
