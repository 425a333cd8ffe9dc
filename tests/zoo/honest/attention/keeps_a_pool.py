"""Honest: works in a pool of threads, which waits between its calls."""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}

pool = ThreadPoolExecutor(2)


@kernel("attention", backend="pytorch")
def keeps_a_pool(q, k, v, *, causal, scale):
    parts = [(q[:, i : i + 1], k[:, i : i + 1], v[:, i : i + 1]) for i in range(q.shape[1])]

    def one(part):
        with torch.no_grad():
            return F.scaled_dot_product_attention(*part, is_causal=causal, scale=scale)

    return torch.cat(list(pool.map(one, parts)), 1)
