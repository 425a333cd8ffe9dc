"""Honest: works in a ring of workspaces that it allocates one at a time, longer than the first rounds last."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}
LENGTH = 600

ring, calls = [], 0


@kernel("attention", backend="pytorch")
def fills_a_ring(q, k, v, *, causal, scale):
    global calls
    if len(ring) < LENGTH:
        ring.append(torch.empty_like(q))
    scaled, calls = ring[calls % LENGTH], calls + 1
    torch.mul(q, scale, out=scaled)
    return F.scaled_dot_product_attention(scaled, k, v, is_causal=causal, scale=1.0)
