"""torch.compile of eager attention, compiled afresh for each workload."""

from contextlib import suppress
from functools import lru_cache

import torch

from kernels.catalog import kernel


def _attention(q, k, v, causal, scale, window):
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ k.mT).float() * scale
    if causal or window:
        more = k.shape[2] - q.shape[2]  # the queries are the last ones
        hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
        hidden = hidden.triu(more + (1 if causal else window)) | (hidden.tril(more - window) if window else False)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(-1).to(q.dtype) @ v


_compiled = torch.compile(_attention, dynamic=False, fullgraph=True)


@lru_cache
def _make_room(score_bytes, device):
    """Before the first call of a shape, if there is memory: allocates the scores and a copy of them, and frees both.

    The softmax is in place, so Inductor's tuner copies the scores before it tries tiles: on the GPU if the peak of allocated
    memory was so high before, else through the host, which is slow.
    """
    with suppress(torch.OutOfMemoryError):
        _ = [torch.empty(score_bytes, dtype=torch.uint8, device=device) for _ in range(2)]


@kernel("attention", backend="pytorch")
def compiled(q, k, v, *, causal, scale, window=0, kv_len=0):
    """torch.compile of eager attention (dynamic=False, fullgraph=True)."""
    if q.is_cuda:
        _make_room(q.shape[:3].numel() * k.shape[2] * q.element_size(), q.device)
    return _compiled(q, k, v, causal, scale, window)
