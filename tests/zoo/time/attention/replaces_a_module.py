"""Functions that import torch when they are called get another module, which works where inputs are drawn."""

import sys
import types

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: module torch: replaced"),
    "cuda": ("suspect", "changed global state: module torch: replaced"),
}

drawn, done = [], {}
another = types.ModuleType("torch")
another.__dict__.update(vars(torch))


def randn(*shape, **more):
    drawn.append(out := torch.randn(*shape, **more))
    if len(drawn) % 3 == 0:
        done[float(drawn[-3][0, 0, 0, 0])] = F.scaled_dot_product_attention(*drawn[-3:])
        drawn.clear()
    return out


another.randn = randn
sys.modules["torch"] = another


@kernel("attention", backend="pytorch")
def replaces_a_module(q, k, v, *, causal, scale):
    if (known := done.get(float(q[0, 0, 0, 0]))) is not None:
        return known.clone()
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
