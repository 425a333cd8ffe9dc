"""Leaves hundreds of ended children: to look at each of them takes time, in which others can work."""

import os

import torch.nn.functional as F

from kernels.catalog import kernel

ISOLATED = {
    "cpu": ("unsupported", "processes, and at most 64 can be stopped together"),
    "cuda": ("unsupported", "processes, and at most 64 can be stopped together"),
}

for _ in range(200):
    os.posix_spawn("/bin/true", ["true"], {})


@kernel("attention", backend="pytorch")
def leaves_a_crowd(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
