"""Leaves another default dtype behind."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: default dtype: torch.float64 instead of torch.float32"),
    "cuda": ("suspect", "changed global state: default dtype: torch.float64 instead of torch.float32"),
}


@kernel("attention", backend="pytorch")
def changes_the_dtype(q, k, v, *, causal, scale):
    torch.set_default_dtype(torch.float64)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
