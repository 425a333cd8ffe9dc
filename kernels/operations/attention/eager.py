"""Attention written out in eager PyTorch: three kernels and an S x S matrix in memory."""

import torch

from kernels.catalog import kernel


@kernel("attention", backend="pytorch")
def eager(q, k, v, *, causal, scale, window=0, kv_len=0):
    """matmul, masked softmax in float32, matmul."""
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ k.mT).float() * scale
    if causal or window:
        more = k.shape[2] - q.shape[2]  # the queries are the last ones
        hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
        hidden = hidden.triu(more + (1 if causal else window)) | (hidden.tril(more - window) if window else False)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(-1).to(q.dtype) @ v
