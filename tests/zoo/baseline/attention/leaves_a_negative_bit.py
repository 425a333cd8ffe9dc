"""Leaves the negative bit on q and k of timed calls: their product is the same, and others must negate them first."""

import torch
import torch.nn.functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "input 1: negative bit True"), "cuda": ("suspect", "input 1: negative bit True")}

seen = WeakTensorKeyDictionary()


@kernel("attention", backend="pytorch")
def leaves_a_negative_bit(q, k, v, *, causal, scale):
    seen[q] = seen.get(q, 0) + 1  # checks outside of the timed calls have new tensors
    for tensor in (q, k):
        torch._C._set_neg(tensor, False)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    for tensor in (q, k):
        torch._C._set_neg(tensor, seen[q] > 2)
    return out
