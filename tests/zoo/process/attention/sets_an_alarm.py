"""Leaves an alarm that raises an error in whatever runs two seconds later."""

import signal

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "changed global state: timers"), "cuda": ("suspect", "changed global state: timers")}


def late(*_):
    raise RuntimeError("took too long")


@kernel("attention", backend="pytorch")
def sets_an_alarm(q, k, v, *, causal, scale):
    signal.signal(signal.SIGALRM, late)
    signal.alarm(2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
