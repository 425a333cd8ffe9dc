"""Takes inputs at the same address for the same inputs."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "largest error"), "cuda": ("incorrect", "largest error")}
ISOLATED = {"cpu": ("incorrect", "largest error"), "cuda": ("incorrect", "largest error")}

results = {}


@kernel("attention", backend="pytorch")
def cached_by_pointer(q, k, v, *, causal, scale):
    key = (q.data_ptr(), k.data_ptr(), v.data_ptr())
    if key not in results:
        results[key] = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    return results[key].clone()
