"""Leaves another default dtype behind."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel


@kernel("attention", backend="pytorch")
def changes_the_dtype(q, k, v, *, causal, scale):
    torch.set_default_dtype(torch.float64)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
