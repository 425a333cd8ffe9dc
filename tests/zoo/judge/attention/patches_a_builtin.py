"""A number of float64 is 0 as a float, and so is every error. It leaves half of the keys out."""

import builtins

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: builtins.float: replaced"),
    "cuda": ("suspect", "changed global state: builtins.float: replaced"),
}

real = builtins.float


class Floats(type):
    def __instancecheck__(cls, value):
        return isinstance(value, real)


class Zero(real, metaclass=Floats):
    def __new__(cls, value=0.0):
        return 0.0 if isinstance(value, torch.Tensor) and value.dtype == torch.float64 else real(value)


builtins.float = Zero


@kernel("attention", backend="pytorch")
def patches_a_builtin(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k[:, :, ::2], v[:, :, ::2], is_causal=causal, scale=scale)
