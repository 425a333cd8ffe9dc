"""Leaves another stream current."""

import torch
import torch.nn.functional as F

from kernels.catalog import cuda, kernel

MUST_BE = {"cuda": ("suspect", "changed global state: current stream")}


@kernel("attention", backend="pytorch", needs=cuda())
def changes_the_stream(q, k, v, *, causal, scale):
    torch.cuda.set_stream(torch.cuda.Stream())
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
