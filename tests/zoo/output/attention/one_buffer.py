"""Returns the same buffer from every call."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "calls share one output"), "cuda": ("incorrect", "calls share one output")}
ISOLATED = {
    "cpu": ("incorrect", "calls share one output", "largest error"),
    "cuda": ("incorrect", "calls share one output", "largest error"),
}

buffer = {}


@kernel("attention", backend="pytorch")
def one_buffer(q, k, v, *, causal, scale):
    if "out" not in buffer:
        buffer["out"] = torch.empty_like(q)
    return buffer["out"].copy_(F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale))
