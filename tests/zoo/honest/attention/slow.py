"""Right, and slow enough that a run of it can be disturbed in the middle."""

import time

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}


@kernel("attention", backend="pytorch")
def slow(q, k, v, *, causal, scale):
    time.sleep(0.02)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
