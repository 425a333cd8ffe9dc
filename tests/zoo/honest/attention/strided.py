"""Honest: its output is right, and not contiguous."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}


@kernel("attention", backend="pytorch")
def strided(q, k, v, *, causal, scale):
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    return out.transpose(1, 2).contiguous().transpose(1, 2)
