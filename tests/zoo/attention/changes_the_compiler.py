"""Leaves settings of torch.compile, with which other kernels fail."""

import torch._dynamo
import torch.nn.functional as F

from kernels.catalog import kernel

torch._dynamo.config.disable = True


@kernel("attention", backend="pytorch")
def changes_the_compiler(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
