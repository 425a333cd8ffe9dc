"""Right, but scales q in place."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("incorrect", "the kernel changed its inputs"),
    "cuda": ("incorrect", "the kernel changed its inputs"),
}
ISOLATED = {
    "cpu": ("incorrect", "the kernel changed its inputs"),
    "cuda": ("incorrect", "the kernel changed its inputs"),
}


@kernel("attention", backend="pytorch")
def changes_its_input(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q.mul_(scale), k, v, is_causal=causal, scale=1.0)
