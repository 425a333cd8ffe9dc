"""Leaves settings of torch.compile, with which other kernels fail."""

import torch._dynamo
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: compiler's settings: torch._dynamo.config.disable"),
    "cuda": ("suspect", "changed global state: compiler's settings: torch._dynamo.config.disable"),
}
PROTOCOL = {}

torch._dynamo.config.disable = True


@kernel("attention", backend="pytorch")
def changes_the_compiler(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
