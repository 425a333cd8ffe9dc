"""Right in the first and in the last calls on one buffer; between them it leaves half of the keys out."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("incorrect", "correct when checked alone, wrong when timed"),
    "cuda": ("incorrect", "correct when checked alone, wrong when timed"),
}
PROTOCOL = {"name": "fixed"}

calls = {}
FIRST, LAST = 230, 650


@kernel("attention", backend="pytorch")
def cheats_in_the_middle(q, k, v, *, causal, scale):
    calls[q.data_ptr()] = number = calls.get(q.data_ptr(), 0) + 1
    if FIRST < number < LAST:
        k, v = k[:, :, ::2], v[:, :, ::2]
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
