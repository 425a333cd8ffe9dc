"""torch.compile of native sparse attention in plain PyTorch, compiled afresh for each workload."""

import torch

from kernels.catalog import kernel

GATHERED = 2**28
"""Elements of k that are gathered at once; as many of v: 1 GiB together in 16 bits."""


def _over(q, k, v, places, hidden, scale):
    batch, groups = torch.arange(len(q), device=q.device)[:, None, None, None], k.shape[2]
    group = torch.arange(groups, device=q.device)[:, None]
    k, v = k[batch, places, group], v[batch, places, group]
    scores = (q.unflatten(2, (groups, -1)) @ k.mT).float() * scale
    weights = scores.masked_fill(hidden[:, :, :, None], float("-inf")).softmax(-1).nan_to_num(0.0)
    return (weights.to(q.dtype) @ v).flatten(2, 3)


def _attend(q, k, v, chosen, token, block_size, causal, scale, window):
    """q and chosen: of some tokens, whose positions are `token` (T,)."""
    length, device, token = k.shape[1], q.device, token[:, None, None]
    chosen = chosen.long()
    places = (chosen[..., None] * block_size + torch.arange(block_size, device=device)).flatten(3)
    hidden = (chosen < 0).repeat_interleave(block_size, 3) | (places > (token if causal else length - 1))
    out = _over(q, k, v, places.clamp(0, length - 1), hidden, scale)
    if window:
        places = token + torch.arange(1 - window, 1 if causal else window, device=device)
        hidden = ((places < 0) | (places >= length))[None]
        places = places.clamp(0, length - 1).expand(len(q), -1, k.shape[2], -1)
        out = out + _over(q, k, v, places, hidden, scale)
    return out


_compiled = torch.compile(_attend, dynamic=False, fullgraph=True)


@kernel("nsa", backend="pytorch")
def compiled(q, k, v, block_indices, *, block_size, causal, scale, window=0):
    """torch.compile of eager for a stretch of tokens (dynamic=False, fullgraph=True)."""
    batch, length, _, dim = q.shape
    groups, slots = block_indices.shape[2:]
    keys = max(slots * block_size, 2 * window)
    step = max(1, min(length, GATHERED // (batch * groups * keys * dim)))
    out, token = torch.empty_like(q), torch.arange(length, device=q.device)
    for at in range(0, length, step):
        first = min(at, length - step)  # every stretch is equally long, so it is compiled once
        here = slice(first, first + step)
        out[:, here] = _compiled(
            q[:, here], k, v, block_indices[:, here], token[here], block_size, causal, scale, window
        )
    return out
