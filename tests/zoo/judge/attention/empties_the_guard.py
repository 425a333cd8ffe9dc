"""Empties the guard, and then changes a setting that others need."""

import gc

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "changed global state: "), "cuda": ("suspect", "changed global state: ")}


@kernel("attention", backend="pytorch")
def empties_the_guard(q, k, v, *, causal, scale):
    for one in gc.get_objects():
        if type(one).__module__ == "kernels.child.guard":
            one.settings = type(one.settings)()
            torch.backends.cuda.enable_flash_sdp(False)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
