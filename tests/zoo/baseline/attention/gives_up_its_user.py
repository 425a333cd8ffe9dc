"""Becomes another user in its call 30: what the others may read, write and raise again is less. Where it may not, it blocks
signals."""

import os
import signal

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: permission to be read: ", "changed global state: blocked signals: "),
    "cuda": ("suspect", "changed global state: permission to be read: ", "changed global state: blocked signals: "),
}
NOBODY = 65534
calls = []


@kernel("attention", backend="pytorch")
def gives_up_its_user(q, k, v, *, causal, scale):
    calls.append(None)
    if len(calls) == 30 and os.getuid() == 0:
        os.setuid(NOBODY)
    elif len(calls) == 30:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
