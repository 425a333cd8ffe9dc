"""Writes into an input, but where new memory holds poison: there its inputs are compared."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("incorrect", "the kernel changed its inputs"),
    "cuda": ("incorrect", "the kernel changed its inputs"),
}


@kernel("attention", backend="pytorch")
def in_place_unless_checked(q, k, v, *, causal, scale):
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    memory = torch.empty(2048, dtype=torch.uint8)
    poisoned = int(memory[1000]) == 0x7E
    memory.zero_()  # the next call may get it again
    if poisoned:
        return out
    return q.data.copy_(out)
