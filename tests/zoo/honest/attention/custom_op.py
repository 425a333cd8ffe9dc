"""Honest: registers an operator of its own, and calls that."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}


@torch.library.custom_op("zoo::attention", mutates_args=())
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


@attention.register_fake
def _(q, k, v, causal, scale):
    return torch.empty_like(q)


@kernel("attention", backend="pytorch")
def custom_op(q, k, v, *, causal, scale):
    return attention(q, k, v, causal, scale)
