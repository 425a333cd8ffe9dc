"""Has nobody wait for the device."""

import torch
import torch.nn.functional as F

from kernels.catalog import cuda, kernel

MUST_BE = {"cuda": ("suspect", "changed global state: torch.cuda.synchronize: replaced")}

torch.cuda.synchronize = lambda device=None: None


@kernel("attention", backend="pytorch", needs=cuda())
def patches_synchronize(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
