"""Replaces the clock."""

import time

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: time.perf_counter_ns: replaced"),
    "cuda": ("suspect", "changed global state: time.perf_counter_ns: replaced"),
}

time.perf_counter_ns = lambda: 0


@kernel("attention", backend="pytorch")
def patches_the_clock(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
