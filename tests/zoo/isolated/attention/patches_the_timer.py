"""Replaces every clock of its process by one that runs at a third of the time."""

import sys
import time

import torch.nn.functional as F

from kernels.catalog import kernel

ISOLATED = {"cpu": ("no effect",), "cuda": ("no effect",)}

NAMES = ("perf_counter_ns", "monotonic_ns", "perf_counter", "monotonic")


def slower(clock):
    begin = clock()
    return lambda: begin + (clock() - begin) // 3


@kernel("attention", backend="pytorch")
def patches_the_timer(q, k, v, *, causal, scale):
    for module in list(sys.modules.values()):
        for name in NAMES:
            clock = getattr(module, "__dict__", {}).get(name)
            if type(clock) is type(len):
                setattr(module, name, slower(clock))
    time.is_patched = True
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
