"""Native sparse attention in eager PyTorch: the selected keys are gathered, a stretch of tokens at a time."""

import torch

from kernels.catalog import kernel

GATHERED = 2**28
"""Elements of k that are gathered at once; as many of v: 1 GiB together in 16 bits."""


@kernel("nsa", backend="pytorch")
def eager(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """Gathers keys and values, then matmul, masked softmax in float32, matmul; a stretch of tokens at a time."""
    batch, length, _, dim = q.shape
    groups, slots = block_indices.shape[2:]
    keys = max(slots * block_size, 2 * window)
    step = max(1, min(length, GATHERED // (batch * groups * keys * dim)))
    parts = [
        attend(q, k, v, block_indices, start, min(start + step, length), block_size, causal, scale, window)
        for start in range(0, length, step)
    ]
    return torch.cat(parts, 1)


def attend(q, k, v, block_indices, start, stop, block_size, causal, scale, window):
    """The output of the tokens from start to stop - 1: (B, stop - start, H, D)."""
    length, device = q.shape[1], q.device
    token = torch.arange(start, stop, device=device)[:, None, None]
    chosen = block_indices[:, start:stop].long()
    places = (chosen[..., None] * block_size + torch.arange(block_size, device=device)).flatten(3)
    hidden = (chosen < 0).repeat_interleave(block_size, 3) | (places > (token if causal else length - 1))
    out = over(q[:, start:stop], k, v, places.clamp(0, length - 1), hidden, scale)
    if window:
        places = token + torch.arange(1 - window, 1 if causal else window, device=device)
        hidden = ((places < 0) | (places >= length))[None]
        places = places.clamp(0, length - 1).expand(len(q), -1, k.shape[2], -1)
        out = out + over(q[:, start:stop], k, v, places, hidden, scale)
    return out


def over(q, k, v, places, hidden, scale):
    """Attention of q (B, T, H, D) over the keys at `places` (B, T, G, L)."""
    batch, groups = torch.arange(len(q), device=q.device)[:, None, None, None], k.shape[2]
    group = torch.arange(groups, device=q.device)[:, None]
    k, v = k[batch, places, group], v[batch, places, group]
    scores = (q.unflatten(2, (groups, -1)) @ k.mT).float() * scale
    weights = scores.masked_fill(hidden[:, :, :, None], float("-inf")).softmax(-1).nan_to_num(0.0)
    return (weights.to(q.dtype) @ v).flatten(2, 3)
