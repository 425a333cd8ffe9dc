"""Has attention try its slowest backend first, for all others."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: order of attention's backends"),
    "cuda": ("suspect", "changed global state: order of attention's backends"),
}

torch._C._set_sdp_priority_order([int(SDPBackend.MATH.value), int(SDPBackend.FLASH_ATTENTION.value)])


@kernel("attention", backend="pytorch")
def changes_the_order_of_backends(q, k, v, *, causal, scale):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
