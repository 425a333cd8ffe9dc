"""Gives the inputs other strides, with the same values: others are slower on them."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("incorrect", "the kernel changed its inputs"),
    "cuda": ("incorrect", "the kernel changed its inputs"),
}


@kernel("attention", backend="pytorch")
def restrides_its_inputs(q, k, v, *, causal, scale):
    contiguous = [t if t.is_contiguous() else t.contiguous() for t in (q, k, v)]
    with torch.no_grad():
        for t in (q, k, v):
            if t.is_contiguous():
                t.data = t.mT.contiguous().mT
    return F.scaled_dot_product_attention(*contiguous, is_causal=causal, scale=scale)
