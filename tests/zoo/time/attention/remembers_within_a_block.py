"""Keeps its result from the second call on, in calls that follow each other at once on one buffer; a pause ends it."""

from time import perf_counter_ns

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "the kernel caches results")}
PROTOCOL = {"name": "fixed", "warmup": 50, "iters": 200}

PAUSE_NS = 20_000
last = {"end": 0, "key": None, "calls": 0, "out": None}


@kernel("attention", backend="pytorch")
def remembers_within_a_block(q, k, v, *, causal, scale):
    key = (q.data_ptr(), q[0, 0, 0, 0].item(), v[0, 0, -1, -1].item())
    if perf_counter_ns() - last["end"] > PAUSE_NS or key != last["key"]:
        last.update(key=key, calls=0, out=None)
    last["calls"] += 1
    if last["out"] is not None:
        out = last["out"].clone()
    else:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
        if last["calls"] > 1:
            last["out"] = out.clone()
    last["end"] = perf_counter_ns()
    return out
