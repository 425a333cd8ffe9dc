"""Honest: its operator is declared as one that may write into its inputs, and writes into none."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}


@torch.library.custom_op("zoo::says_it_writes", mutates_args="unknown")
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


@kernel("attention", backend="pytorch")
def says_it_writes(q, k, v, *, causal, scale):
    return attention(q, k, v, causal, scale)
