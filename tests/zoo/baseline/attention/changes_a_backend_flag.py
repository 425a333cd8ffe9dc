"""Leaves TF32 on and an attention backend off."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": (
        "suspect",
        "changed global state: float32 matmul precision: high instead of highest; flash attention: False",
    ),
    "cuda": ("suspect", "changed global state: "),
}

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cuda.enable_flash_sdp(False)


@kernel("attention", backend="pytorch")
def changes_a_backend_flag(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
