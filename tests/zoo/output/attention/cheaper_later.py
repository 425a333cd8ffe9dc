"""Right in its first calls; then it leaves half of the keys out."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("incorrect", "correct when checked alone, wrong when timed"),
    "cuda": ("incorrect", "correct when checked alone, wrong when timed"),
}
ISOLATED = {"cpu": ("incorrect", "largest error"), "cuda": ("incorrect", "largest error")}

calls = []


@kernel("attention", backend="pytorch")
def cheaper_later(q, k, v, *, causal, scale):
    calls.append(len(calls))
    if len(calls) > 9:
        k, v = k[:, :, ::2], v[:, :, ::2]
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
