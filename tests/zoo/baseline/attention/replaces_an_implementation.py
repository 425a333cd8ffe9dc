"""Gives an operator that others call another implementation, which takes its time first."""

import time

import torch

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "changed global state: implementations of aten operators: aten/_softmax/CPU")}
ISOLATED = {"cpu": ("no effect",), "cuda": ("no effect",)}

library = torch.library.Library("aten", "IMPL")


def slowly(x, dim, half_to_float):
    time.sleep(0.001)
    shifted = (x - x.amax(dim, keepdim=True)).exp()
    return shifted / shifted.sum(dim, keepdim=True)


library.impl("_softmax", slowly, "CPU")


@kernel("attention", backend="pytorch")
def replaces_an_implementation(q, k, v, *, causal, scale):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
