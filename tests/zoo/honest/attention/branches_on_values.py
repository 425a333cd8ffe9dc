"""Honest: takes the keys in the order of their first value. A CPU learns the branches of a sort, and the same values again take
less time: no result is kept."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}


@kernel("attention", backend="pytorch")
def branches_on_values(q, k, v, *, causal, scale):
    order = k[0, 0, :, 0].sort().indices
    keys, values = k.index_select(2, order), v.index_select(2, order)
    if not causal:
        return F.scaled_dot_product_attention(q, keys, values, scale=scale)
    seen = order[None, :] <= torch.arange(q.shape[2], device=q.device)[:, None]
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen, scale=scale)
