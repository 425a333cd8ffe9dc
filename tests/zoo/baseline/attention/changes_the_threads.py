"""Leaves a number of threads that suits nobody."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "changed global state: number of threads: 8 instead of 1")}


@kernel("attention", backend="pytorch")
def changes_the_threads(q, k, v, *, causal, scale):
    torch.set_num_threads(torch.get_num_threads() + 7)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
