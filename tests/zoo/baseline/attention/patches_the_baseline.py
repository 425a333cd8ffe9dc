"""Makes scaled_dot_product_attention slow, and keeps the fast one to itself."""

import time

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: torch.nn.functional.scaled_dot_product_attention: replaced"),
    "cuda": ("suspect", "changed global state: torch.nn.functional.scaled_dot_product_attention: replaced"),
}

fast = F.scaled_dot_product_attention


def slow(*args, **kwargs):
    time.sleep(0.01)
    return fast(*args, **kwargs)


F.scaled_dot_product_attention = slow


@kernel("attention", backend="pytorch")
def patches_the_baseline(q, k, v, *, causal, scale):
    return fast(q, k, v, is_causal=causal, scale=scale)
