"""Honest: maps over the heads with vmap, which registers its own rules when it is first used."""

import torch

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}


def one(q, k, v, scale, mask):
    return torch.softmax(q @ k.mT * scale + mask, -1) @ v


@kernel("attention", backend="pytorch")
def uses_vmap(q, k, v, *, causal, scale):
    mask = torch.zeros(q.shape[2], k.shape[2], dtype=q.dtype, device=q.device)
    if causal:
        mask.fill_(float("-inf")).triu_(1)
    over = torch.vmap(torch.vmap(one, (0, 0, 0, None, None)), (0, 0, 0, None, None))
    return over(q, k, v, scale, mask)
