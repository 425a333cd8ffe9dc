"""Python traces its memory as soon as the output of its last call is let go, which is when the next arm begins."""

import tracemalloc

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect|no advantage", "tracing of memory: True"),
    "cuda": ("suspect|no advantage", "tracing of memory: True"),
}


class Last:
    def __del__(self):
        tracemalloc.start(50)


@kernel("attention", backend="pytorch")
def traces_memory_of_others(q, k, v, *, causal, scale):
    tracemalloc.stop()
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    out.last = Last()
    return out
