"""Computes in float16 what is asked in float32."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "largest error")}


@kernel("attention", backend="pytorch")
def half_precision(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q.half(), k.half(), v.half(), is_causal=causal, scale=scale).to(q.dtype)
