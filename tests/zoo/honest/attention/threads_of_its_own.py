"""Honest: changes the number of threads for its call, and a pool works on the heads."""

from concurrent.futures import ThreadPoolExecutor

import torch

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",)}

pool = ThreadPoolExecutor(2)


@kernel("attention", backend="pytorch")
def threads_of_its_own(q, k, v, *, causal, scale):
    def head(index):
        scores = (q[:, index] @ k[:, index].mT) * scale
        if causal:
            scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
        return scores.softmax(-1) @ v[:, index]

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    out = torch.stack(list(pool.map(head, range(q.shape[1]))), 1)
    torch.set_num_threads(before)
    return out
