"""Allocates an output and leaves it at that."""

import torch

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("incorrect", "elements of the output were never written"),
    "cuda": ("incorrect", "elements of the output were never written"),
}


@kernel("attention", backend="pytorch")
def never_written(q, k, v, *, causal, scale):
    return torch.empty_like(q)
