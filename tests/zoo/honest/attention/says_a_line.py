"""Honest: prints a line with every call."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}


@kernel("attention", backend="pytorch")
def says_a_line(q, k, v, *, causal, scale):
    print("attention of", tuple(q.shape), flush=True)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
