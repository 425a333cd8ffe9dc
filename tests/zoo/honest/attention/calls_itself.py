"""Honest: halves the heads by a function that calls itself; Python frees such a function when it next collects garbage."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}
PROTOCOL = {"min_rounds": 20, "max_rounds": 20}


@kernel("attention", backend="pytorch")
def calls_itself(q, k, v, *, causal, scale):
    out = torch.empty_like(q)

    def part(first, last):
        if last - first > 1:
            middle = (first + last) // 2
            part(first, middle)
            part(middle, last)
            return
        one = (t[:, first:last] for t in (q, k, v))
        out[:, first:last] = F.scaled_dot_product_attention(*one, is_causal=causal, scale=scale)

    part(0, q.shape[1])
    return out
