"""Leaves a timer whose signals interrupt everyone; it blocks them while it works itself."""

import signal

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "changed global state: "), "cuda": ("suspect", "changed global state: ")}

signal.signal(signal.SIGALRM, lambda *_: sum(range(10_000)))


@kernel("attention", backend="pytorch")
def leaves_a_timer(q, k, v, *, causal, scale):
    signal.setitimer(signal.ITIMER_REAL, 0)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    return out
