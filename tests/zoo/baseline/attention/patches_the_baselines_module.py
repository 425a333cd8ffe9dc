"""Has the baseline call a slower function, by a name in its module."""

import sys
import time
import types

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: benchsite_kernel_sdpa"),
    "cuda": ("suspect", "changed global state: benchsite_kernel_sdpa"),
}

fast = F.scaled_dot_product_attention


def slow(*args, **kwargs):
    time.sleep(0.0005)
    return fast(*args, **kwargs)


@kernel("attention", backend="pytorch")
def patches_the_baselines_module(q, k, v, *, causal, scale):
    for name, module in list(sys.modules.items()):
        if name.startswith("benchsite_kernel_sdpa"):
            module.F = types.SimpleNamespace(scaled_dot_product_attention=slow)
    return fast(q, k, v, is_causal=causal, scale=scale)
