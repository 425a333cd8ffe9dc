"""Keeps a result once it has seen the same values eight times, which only timed calls show so often."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "the kernel caches results"), "cuda": ("suspect", "the kernel caches results")}

seen, known = {}, {}
EIGHTH, MOST = 8, 200


@kernel("attention", backend="pytorch")
def cached_at_eighth_sight(q, k, v, *, causal, scale):
    key = tuple(t.sum().item() for t in (q, k, v))
    if key in known:
        return known[key].clone()
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    seen[key] = seen.get(key, 0) + 1
    if seen[key] >= EIGHTH:
        if len(known) >= MOST:
            known.pop(next(iter(known)))
        known[key] = out.clone()
    return out
