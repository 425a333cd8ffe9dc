"""Writes answers of its own into every pipe that it finds."""

import contextlib
import os

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "code other than the instrument wrote to the answer pipe"),
    "cuda": ("suspect", "code other than the instrument wrote to the answer pipe"),
}
ISOLATED = {
    "cpu": ("suspect", "code other than the instrument wrote to the answer pipe"),
    "cuda": ("suspect", "code other than the instrument wrote to the answer pipe"),
}


@kernel("attention", backend="pytorch")
def forges_answers(q, k, v, *, causal, scale):
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if fd > 2 and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                os.write(fd, b'{"ok": {"compile_s": 0.0, "peak_memory_bytes": 0}}\n')
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
