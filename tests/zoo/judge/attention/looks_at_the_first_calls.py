"""Right on every distribution in single calls. If the first two calls of many in a row get values like N(0, 1), which timed calls
have, it is wrong on others in the rest of them."""

from time import perf_counter

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "correct when checked alone, wrong when timed")}
ISOLATED = {"cpu": ("no effect",)}
PROTOCOL = {"verify_seeds": 3, "block_ms": 4.0, "min_rounds": 12, "max_rounds": 12}
PAUSE_S, LOOKS = 0.003, 2

seen = {"ended": 0.0, "calls": 0, "usual": True}


def _is_usual(x):
    return abs(x.float().std().item() - 1) < 0.03


@kernel("attention", backend="pytorch")
def looks_at_the_first_calls(q, k, v, *, causal, scale):
    if perf_counter() - seen["ended"] > PAUSE_S:
        seen.update(calls=0, usual=True)
    seen["calls"] += 1
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    is_usual = _is_usual(q) and _is_usual(v)
    if seen["calls"] <= LOOKS:
        seen["usual"] &= is_usual
    elif seen["usual"] and not is_usual:  # as if it had left something out that N(0, 1) does not need
        out += out.abs().max() / 16
    seen["ended"] = perf_counter()
    return out
