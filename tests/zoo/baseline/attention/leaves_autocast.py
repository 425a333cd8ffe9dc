"""Enters autocast with its file and never leaves it: whoever runs afterwards computes in bfloat16."""

import torch

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: autocast on cpu: True instead of False"),
    "cuda": ("suspect", "changed global state: autocast on cpu: True instead of False"),
}

torch.autocast("cpu", torch.bfloat16).__enter__()


@kernel("attention", backend="pytorch")
def leaves_autocast(q, k, v, *, causal, scale):
    with torch.autocast("cpu", enabled=False):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
