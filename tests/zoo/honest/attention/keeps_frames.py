"""Honest, but curious: keeps the frames above each of its calls, and so what others hold in theirs."""

import sys

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}
PROTOCOL = {}

kept = []


@kernel("attention", backend="pytorch")
def keeps_frames(q, k, v, *, causal, scale):
    frame = sys._getframe()
    while frame := frame.f_back:
        kept.append(frame)
    del kept[:-20]
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
