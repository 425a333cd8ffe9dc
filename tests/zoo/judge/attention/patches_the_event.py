"""Has every CUDA event say that nothing took any time."""

import torch
import torch.nn.functional as F

from kernels.catalog import cuda, kernel

MUST_BE = {"cuda": ("suspect", "changed global state: torch.cuda.Event.elapsed_time: replaced")}

torch.cuda.Event.elapsed_time = lambda self, end: 1e-3


@kernel("attention", backend="pytorch", needs=cuda())
def patches_the_event(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
