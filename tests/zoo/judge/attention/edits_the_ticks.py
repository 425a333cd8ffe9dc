"""Finds the list of times in the frame of the clock that calls it, and shortens each by a tenth."""

import sys

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "")}
LIMIT = "a kernel that shares the clock's process can read its stack, and change by a tenth what it finds there"
PROTOCOL = {"block_ms": 4.0}


@kernel("attention", backend="pytorch")
def edits_the_ticks(q, k, v, *, causal, scale):
    frame = sys._getframe()
    while frame := frame.f_back:
        if frame.f_code.co_name == "block" and (ticks := frame.f_locals.get("ticks")):
            ticks[-1] *= 0.9
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
