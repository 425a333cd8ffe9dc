"""Keeps results until somebody writes into the inputs, but only while one set of inputs follows another."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "wrong when timed"), "cuda": ("incorrect", "wrong when timed")}
PROTOCOL = {"min_rounds": 30, "max_rounds": 30, "block_ms": 4.0}

known, last = {}, []
MOST = 300


@kernel("attention", backend="pytorch")
def remembers_while_sets_rotate(q, k, v, *, causal, scale):
    place = tuple(t.data_ptr() for t in (q, k, v))
    key = place, tuple(t._version for t in (q, k, v))
    rotating = place not in last
    last[:] = [place]
    if rotating and key in known:
        return known[key].clone()
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    if len(known) < MOST or place in {p for p, _ in known}:
        for old in [one for one in known if one[0] == place]:
            del known[old]
        known[key] = out.clone()
    return out
