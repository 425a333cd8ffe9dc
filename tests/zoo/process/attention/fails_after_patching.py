"""Replaces the baseline's function, empties the guard, and fails: what it leaves is not the next kernel's."""

import gc

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("failed", "no such tile"), "cuda": ("failed", "no such tile")}
attention = F.scaled_dot_product_attention


@kernel("attention", backend="pytorch")
def fails_after_patching(q, k, v, *, causal, scale):
    F.scaled_dot_product_attention = lambda *of, **how: attention(*of, **how)
    for one in gc.get_objects():
        if type(one).__module__ == "kernels.child.guard":
            one.settings = ()
    raise ValueError("no such tile")
