"""Honest: runs in inference mode, and with another setting that it puts back."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}


@kernel("attention", backend="pytorch")
def in_inference_mode(q, k, v, *, causal, scale):
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
