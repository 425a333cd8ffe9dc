"""FlexAttention: PyTorch's attention with any mask, compiled to a Triton kernel that skips blocks without a visible pair.

Its block mask says which blocks these are. It depends on the length and on the mask, not on the values, and a model makes
it once for all layers. So it is made in the first call of a shape, which is not timed, and kept.
"""

from functools import lru_cache

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from kernels.catalog import cuda, kernel

LONG = 16_384
"""Above this length the block mask is made by a compiled function, which does not store S x S elements."""

_compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)


def visible(causal, window):
    """The mask as FlexAttention takes it: whether query i sees key j, elementwise; None if it sees every key."""

    def is_causal(b, h, i, j):
        return i >= j

    def is_near(b, h, i, j):
        return (i - j < window) & (j - i < window)

    def is_near_and_causal(b, h, i, j):
        return (i >= j) & (i - j < window)

    if window:
        return is_near_and_causal if causal else is_near
    return is_causal if causal else None


@lru_cache(maxsize=2)
def _blocks(length, causal, window, device):
    mask = visible(causal, window)
    make = torch.compile(create_block_mask) if length > LONG else create_block_mask
    return mask and make(mask, None, None, length, length, device=device)


@kernel("attention", backend="pytorch", needs=cuda(min_capability=8.0))
def flex(q, k, v, *, causal, scale, window=0):
    """FlexAttention, compiled (dynamic=False, fullgraph=True); its block mask is made once for each shape."""
    blocks = _blocks(q.shape[2], causal, window, str(q.device))
    return _compiled(q, k, v, block_mask=blocks, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
