"""Honest: turns gradients off and warnings into errors with its file, as inference code and careful code do."""

import warnings

import torch

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}

torch.set_grad_enabled(False)
warnings.simplefilter("error")


@kernel("attention", backend="pytorch")
def without_gradients(q, k, v, *, causal, scale):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
