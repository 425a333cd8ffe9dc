"""Honest, if loud: prints 100 MB with its first call."""

import torch.nn.functional as F

from kernels.catalog import kernel

said = []


@kernel("attention", backend="pytorch")
def talkative(q, k, v, *, causal, scale):
    if not said:
        said.append(True)
        for _ in range(100):
            print("x" * 2**20, flush=True)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
