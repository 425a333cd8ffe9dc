"""Gives the bench a method of its own, which times half of the calls."""

import gc
import types
from functools import partial

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: the bench.block: replaced"),
    "cuda": ("suspect", "changed global state: the bench.block: replaced"),
}


def shorter(own, self, arm, calls, **how):
    found = own(arm, calls, **how)
    if arm.startswith("gives"):
        return found.model_copy(update={"ticks_ns": [tick / 2 for tick in found.ticks_ns]})
    return found


@kernel("attention", backend="pytorch")
def gives_the_bench_a_method(q, k, v, *, causal, scale):
    for one in gc.get_objects():
        if type(one).__name__ == "Bench" and "block" not in vars(one):
            own = one.block
            one.block = types.MethodType(partial(shorter, own), one)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
