"""Honest: its library asks to be told of garbage collections, as JAX does when it is imported."""

import gc

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}

gc.callbacks.append(lambda phase, info: None)


@kernel("attention", backend="pytorch")
def hears_of_garbage(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
