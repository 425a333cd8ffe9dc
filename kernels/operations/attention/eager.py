"""Attention written out in eager PyTorch: three kernels and an S x S matrix in memory."""

import torch

from kernels.catalog import kernel


@kernel("attention", backend="pytorch")
def eager(q, k, v, *, causal, scale):
    """matmul, masked softmax in float32, matmul."""
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ k.mT).float() * scale
    if causal:
        length = q.shape[2]
        mask = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(-1).to(q.dtype) @ v
