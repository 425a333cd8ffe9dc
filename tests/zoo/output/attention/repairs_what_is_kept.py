"""Leaves half of the keys out; what is still there two calls later was kept, and is put right then."""

import weakref

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "wrong when timed"), "cuda": ("incorrect", "wrong when timed")}
PROTOCOL = {"min_rounds": 30, "max_rounds": 30, "block_ms": 4.0}

seen, owed, last = {}, [], []


@kernel("attention", backend="pytorch")
def repairs_what_is_kept(q, k, v, *, causal, scale):
    key, versions = q.data_ptr(), tuple(t._version for t in (q, k, v))
    again = seen.get(key) == versions and key not in last
    last[:] = [key]
    seen[key] = versions
    while len(owed) > 1:
        kept, inputs = owed.pop(0)
        if (out := kept()) is not None:
            out.copy_(F.scaled_dot_product_attention(*inputs, is_causal=causal, scale=scale))
    if not again:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    out = F.scaled_dot_product_attention(q, k[:, :, ::2], v[:, :, ::2], is_causal=causal, scale=scale)
    owed.append((weakref.ref(out), (q, k, v)))
    return out
