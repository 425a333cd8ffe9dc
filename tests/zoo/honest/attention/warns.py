"""Honest: warns in every call, and needs gradients to be possible."""

import warnings

import torch

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}


@kernel("attention", backend="pytorch")
def warns(q, k, v, *, causal, scale):
    warnings.warn("this kernel is young", stacklevel=1)
    if not torch.is_grad_enabled():
        raise RuntimeError("gradients are off")
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
