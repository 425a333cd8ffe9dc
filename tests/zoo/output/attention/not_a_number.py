"""Divides zero by zero."""

import torch

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "elements are NaN or Inf"), "cuda": ("incorrect", "elements are NaN or Inf")}


@kernel("attention", backend="pytorch")
def not_a_number(q, k, v, *, causal, scale):
    return torch.zeros_like(q) / 0
