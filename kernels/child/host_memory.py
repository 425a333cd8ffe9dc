"""The C library's memory on a CPU: what calls free stays with the process, so that no timed call waits for new pages.

All outputs of a block live until its end. Without this, outputs of 128 KiB and more would get new pages in every call,
which may take longer than the call itself.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""Options of mallopt(3), in bytes: free memory at the top that is given back; memory that is taken in advance; size from
which memory is mapped on its own."""
KEPT_BYTES, AHEAD_BYTES, LARGEST_BYTES = 2**31 - 1, 2**26, 2**25
"""LARGEST_BYTES: the most that mallopt takes. Larger tensors are mapped anew by each call."""
MOST_TOUCHED_BYTES = 2**30


def keep_freed() -> None:
    """Nothing happens where the C library has no mallopt."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_MMAP_THRESHOLD, LARGEST_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_TOP_PAD, AHEAD_BYTES)


def touch(nbytes: int) -> None:
    """Takes and frees so much memory in pieces that stay with the process, so that its pages exist."""
    import torch

    pieces = min(nbytes, MOST_TOUCHED_BYTES) // (LARGEST_BYTES // 2) + 1
    held = [torch.zeros(LARGEST_BYTES // 2, dtype=torch.uint8) for _ in range(pieces)]
    for piece in held:
        piece.fill_(1)
