"""Knows inputs again by a few of their values, and returns the very tensor that it returned then."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "calls share one output"), "cuda": ("incorrect", "calls share one output")}

results = {}


@kernel("attention", backend="pytorch")
def returned_again(q, k, v, *, causal, scale):
    key = (*q[0, 0, 0, :4].tolist(), *k[0, 0, 0, :4].tolist(), *v[0, 0, 0, :4].tolist())
    if key not in results:
        results[key] = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    return results[key]
