"""Right where it is being checked alone; else it leaves half of the keys out."""

import sys

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("incorrect", "correct when checked alone, wrong when timed"),
    "cuda": ("incorrect", "correct when checked alone, wrong when timed"),
}


@kernel("attention", backend="pytorch")
def knows_the_check(q, k, v, *, causal, scale):
    frame, checked = sys._getframe(), False
    while frame := frame.f_back:
        checked |= frame.f_code.co_name in ("verify", "compile")
    if not checked:
        k, v = k[:, :, ::2], v[:, :, ::2]
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
