"""Kernels are loaded from elsewhere from now on."""

import os

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: variable KERNEL_PATH"),
    "cuda": ("suspect", "changed global state: variable"),
}

os.environ["KERNEL_PATH"] = "/nonexistent"


@kernel("attention", backend="pytorch")
def changes_where_kernels_are(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
