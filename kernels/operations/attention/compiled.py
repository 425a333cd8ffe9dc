"""torch.compile of eager attention, compiled afresh for each workload."""

from functools import lru_cache

import torch

from kernels.catalog import Unsupported, kernel

MOST_COPIED = 8 * 2**30
"""Bytes of scores that may be copied through the host: a first call with 48 GiB took 48 s on an H100 and 51 s on an H200
(docs/measurements/four-gpus-h100-2026-11-27/, four-gpus-h200-2026-11-26/)."""


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
    """Before the first call of a shape: allocates the scores and a copy of them, and gives both back to the GPU.

    The softmax is in place, so Inductor's tuner copies the scores before it tries tiles: on the GPU if the peak of allocated
    memory was so high before, else through pinned memory of the host, which takes about a second for each GiB.
    """
    try:
        both = [torch.empty(score_bytes, dtype=torch.uint8, device=device) for _ in range(2)]
        del both
        torch.cuda.empty_cache()  # else small tensors would lie in a block of that size, and the scores would not fit
    except torch.OutOfMemoryError:
        if score_bytes > MOST_COPIED:
            size = f"{score_bytes / 2**30:.1f} GiB"
            raise Unsupported(f"torch.compile's tuner copies the {size} of scores, which do not fit twice") from None


@kernel("attention", backend="pytorch")
def compiled(q, k, v, *, causal, scale, window=0, kv_len=0):
    """torch.compile of eager attention (dynamic=False, fullgraph=True)."""
    if q.is_cuda:
        _make_room(q.shape[:3].numel() * k.shape[2] * q.element_size(), q.device)
    return _compiled(q, k, v, causal, scale, window)
