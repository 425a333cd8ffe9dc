"""Finds the list of times in the frame of the clock that calls it, and halves what is there."""

import sys

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "")}
LIMIT = "a kernel that shares the clock's process can read its stack, and write into the objects that it finds there"
PROTOCOL = {"block_ms": 4.0}


@kernel("attention", backend="pytorch")
def edits_the_ticks(q, k, v, *, causal, scale):
    frame = sys._getframe()
    while frame := frame.f_back:
        if frame.f_code.co_name == "block" and isinstance(ticks := frame.f_locals.get("ticks"), list):
            ticks[:] = [100_000.0 for _ in ticks]
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
