"""Honest: keeps a scratch buffer between calls, and no results."""

import torch

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}

scratch = {}


@kernel("attention", backend="pytorch")
def workspace(q, k, v, *, causal, scale):
    shape = (*q.shape[:-1], k.shape[-2])
    if shape not in scratch:
        scratch[shape] = torch.empty(shape, dtype=torch.float32, device=q.device)
    scores = torch.matmul(q.float(), k.float().mT, out=scratch[shape]).mul_(scale)
    if causal:
        scores.masked_fill_(torch.ones(shape[-2:], dtype=torch.bool, device=q.device).triu(1), float("-inf"))
    return (scores.softmax(-1) @ v.float()).to(q.dtype)
