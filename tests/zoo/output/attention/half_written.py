"""Writes the first half of the output."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("incorrect", "elements of the output were never written"),
    "cuda": ("incorrect", "elements of the output were never written"),
}
ISOLATED = {"cpu": ("incorrect", "largest error", "NaN or Inf"), "cuda": ("incorrect", "largest error", "NaN or Inf")}


@kernel("attention", backend="pytorch")
def half_written(q, k, v, *, causal, scale):
    out = torch.empty_like(q)
    half = q.shape[2] // 2
    out[:, :, :half] = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)[:, :, :half]
    return out
