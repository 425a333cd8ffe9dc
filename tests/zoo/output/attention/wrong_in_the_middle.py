"""Right in the first calls and in the last ones, which a check would look at; in between it returns its input."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "correct when checked alone, wrong when timed")}
PROTOCOL = {"name": "fixed", "warmup": 50, "iters": 500}

calls = 0
FIRST, LAST = 110, 520


@kernel("attention", backend="pytorch")
def wrong_in_the_middle(q, k, v, *, causal, scale):
    global calls
    calls += 1
    if FIRST < calls < LAST:
        return q.clone()
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
