"""Right, but scales q in place."""

import torch.nn.functional as F

from kernels.catalog import kernel


@kernel("attention", backend="pytorch")
def changes_its_input(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q.mul_(scale), k, v, is_causal=causal, scale=1.0)
