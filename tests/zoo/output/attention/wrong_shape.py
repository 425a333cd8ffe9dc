"""Loses the last row."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "returned shape"), "cuda": ("incorrect", "returned shape")}


@kernel("attention", backend="pytorch")
def wrong_shape(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)[:, :, :-1]
