"""Numbers of this thread are rounded up, and those near 0 become 0."""

import ctypes
import os

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: rounding of numbers"),
    "cuda": ("suspect", "changed global state: rounding of numbers"),
}

UPWARD = {"x86_64": 0x800}.get(os.uname().machine, 0x400000)


@kernel("attention", backend="pytorch")
def changes_rounding(q, k, v, *, causal, scale):
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    torch.set_flush_denormal(True)
    ctypes.CDLL("libm.so.6").fesetround(UPWARD)
    return out
