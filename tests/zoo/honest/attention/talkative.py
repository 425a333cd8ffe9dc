r"""Honest, if loud: prints 100 MB with its first call. It speaks of \u0000, which is six letters here and no NUL."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}

said = []


@kernel("attention", backend="pytorch")
def talkative(q, k, v, *, causal, scale):
    if not said:
        said.append(True)
        for _ in range(100):
            print("x" * 2**20, flush=True)
        print("that was all", flush=True)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
