"""Leaves deterministic mode on, which switches the baseline's backend."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: deterministic mode: True instead of False"),
    "cuda": ("suspect", "changed global state: deterministic mode: True instead of False"),
}

torch.use_deterministic_algorithms(True)


@kernel("attention", backend="pytorch")
def changes_determinism(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
