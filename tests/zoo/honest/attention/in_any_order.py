"""Honest: adds up in another order with every call, so no two outputs are quite equal."""

import torch

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}


@kernel("attention", backend="pytorch")
def in_any_order(q, k, v, *, causal, scale):
    order = torch.randperm(k.shape[2], device=q.device)
    scores = q @ k.mT * scale
    if causal:
        scores = scores.masked_fill(
            torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1), float("-inf")
        )
    return scores.softmax(-1)[..., order] @ v[:, :, order]
