"""Keeps something of every call for ever."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "memory leak: every call keeps")}

kept = []


@kernel("attention", backend="pytorch")
def leaks(q, k, v, *, causal, scale):
    kept.append(q.clone())
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
