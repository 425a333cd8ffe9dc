"""Honest: looks at the frames above each of its calls, as tracers do."""

import sys

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}


@kernel("attention", backend="pytorch")
def walks_frames(q, k, v, *, causal, scale):
    frame, depth = sys._getframe(), 0
    while frame := frame.f_back:
        depth += len(frame.f_locals) > 0
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
