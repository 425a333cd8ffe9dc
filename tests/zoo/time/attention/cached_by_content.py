"""Knows inputs again by a few of their values, and copies the result that it had then."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "the kernel caches results"), "cuda": ("suspect", "the kernel caches results")}
ISOLATED = {"cpu": ("no effect",), "cuda": ("unsupported", "cannot be captured")}

results = {}


@kernel("attention", backend="pytorch")
def cached_by_content(q, k, v, *, causal, scale):
    key = (*q[0, 0, 0, :4].tolist(), *k[0, 0, 0, :4].tolist(), *v[0, 0, 0, :4].tolist())
    if key not in results:
        results[key] = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    return results[key].clone()
