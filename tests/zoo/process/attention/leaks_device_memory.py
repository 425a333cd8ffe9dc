"""Keeps something of every call on the device."""

import torch.nn.functional as F

from kernels.catalog import cuda, kernel

MUST_BE = {"cuda": ("suspect", "memory leak: every call keeps")}

kept = []


@kernel("attention", backend="pytorch", needs=cuda())
def leaks_device_memory(q, k, v, *, causal, scale):
    kept.append(q.clone())
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
