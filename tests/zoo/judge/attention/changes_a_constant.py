"""Nothing is kept of timed calls, which leave half of the keys out. Where new memory holds poison, it is right."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel
from kernels.child import kept

MUST_BE = {
    "cpu": ("suspect", "changed global state: kernels.child.kept.KEEP_SHARE: replaced"),
    "cuda": ("suspect", "changed global state: kernels.child.kept.KEEP_SHARE: replaced"),
}

kept.KEEP_SHARE = 0.0


@kernel("attention", backend="pytorch")
def changes_a_constant(q, k, v, *, causal, scale):
    if int(torch.empty(2048, dtype=torch.uint8)[1000]) != 0x7E:
        k, v = k[:, :, ::2], v[:, :, ::2]
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
