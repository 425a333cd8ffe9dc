"""Dense attention beside native sparse attention: what the sparsity saves. It computes something else."""

import torch.nn.functional as F

from kernels.catalog import kernel


@kernel("nsa", backend="pytorch", other_work="attends to every key, whatever block_indices select")
def sdpa(q, k, v, block_indices, *, block_size, causal, scale):
    """scaled_dot_product_attention over all keys, backend chosen by PyTorch."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    return out.transpose(1, 2)
