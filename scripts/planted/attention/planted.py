"""Kernels that are slower by a known amount: scaled_dot_product_attention, and then one thread that counts.

For B=16 H=96 S=1024 D=64 on an H200, about 0.93 ms: a step is one dependent multiply-add, about 2 ns at 1980 MHz, so 3,400
steps are about 2% and 10,700 about 5%, with 0.6% for the launch of the second kernel.
"""

import torch.nn.functional as F
import triton
import triton.language as tl

from kernels.catalog import cuda, kernel


@triton.jit
def _count(out, steps):
    kept = tl.load(out)
    value = kept.to(tl.float32)
    for _ in range(steps):
        value = value * 0.999 + 1.0
    tl.store(out, tl.where(value == -1.0, value, kept))


def _slower(q, k, v, causal, scale, steps):
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    _count[(1,)](out, steps, num_warps=1)
    return out


@kernel("attention", backend="triton", dtypes=("float16",), needs=cuda(min_capability=8.0))
def planted_2(q, k, v, *, causal, scale):
    """sdpa and about 2% more."""
    return _slower(q, k, v, causal, scale, 3_400)


@kernel("attention", backend="triton", dtypes=("float16",), needs=cuda(min_capability=8.0))
def planted_5(q, k, v, *, causal, scale):
    """sdpa and about 5% more."""
    return _slower(q, k, v, causal, scale, 10_700)
