"""Takes the same tensor objects for the same inputs."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("incorrect", "correct when checked alone, wrong when timed"),
    "cuda": ("incorrect", "correct when checked alone, wrong when timed"),
}
ISOLATED = {"cpu": ("incorrect", "largest error"), "cuda": ("incorrect", "largest error")}

results = {}


@kernel("attention", backend="pytorch")
def cached_by_id(q, k, v, *, causal, scale):
    key = (id(q), id(k), id(v))
    if key not in results:
        results[key] = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale), q, k, v
    return results[key][0].clone()
