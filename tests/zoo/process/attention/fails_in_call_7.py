"""Raises in its seventh call."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("failed", "call 7"), "cuda": ("failed", "call 7")}

calls = []


@kernel("attention", backend="pytorch")
def fails_in_call_7(q, k, v, *, causal, scale):
    calls.append(len(calls))
    if len(calls) == 7:
        raise ValueError("call 7")
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
