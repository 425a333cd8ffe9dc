"""Leaves a function mode on, through which every call of others passes."""

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: torch function modes: 1 instead of 0"),
    "cuda": ("suspect", "changed global state: torch function modes: 1 instead of 0"),
}


class Slow(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        sum(range(20_000))
        return function(*args, **(kwargs or {}))


Slow().__enter__()


@kernel("attention", backend="pytorch")
def leaves_a_function_mode(q, k, v, *, causal, scale):
    with torch._C.DisableTorchFunction():
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
