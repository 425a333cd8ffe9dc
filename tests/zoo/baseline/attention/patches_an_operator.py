"""Makes a @ b slow for all others, in its 4th call."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: torch.Tensor.__matmul__: replaced"),
    "cuda": ("suspect", "changed global state: torch.Tensor.__matmul__: replaced"),
}

calls = []


@kernel("attention", backend="pytorch")
def patches_an_operator(q, k, v, *, causal, scale):
    calls.append(len(calls))
    if len(calls) == 4:
        torch.Tensor.__matmul__ = lambda a, b: torch.matmul(a.double(), b.double()).to(a.dtype)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
