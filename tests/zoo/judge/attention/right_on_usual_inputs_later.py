"""Right on every distribution in its first calls; later only on inputs like those of timed calls, N(0, 1)."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "correct when checked alone, wrong when timed"), "cuda": ("incorrect|unsupported", "")}
PROTOCOL = {"verify_seeds": 3}
FIRST = 40

calls = []


@kernel("attention", backend="pytorch")
def right_on_usual_inputs_later(q, k, v, *, causal, scale):
    calls.append(0)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    if len(calls) > FIRST and abs(q.float().std().item() - 1) > 0.02:
        out += out.abs().max() / 16
    return out
