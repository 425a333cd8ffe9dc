"""Returns a dtype that is half as wide."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "returned torch.float16, not torch.float32")}


@kernel("attention", backend="pytorch")
def wrong_dtype(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale).half()
