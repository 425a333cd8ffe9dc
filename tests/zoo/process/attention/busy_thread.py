"""Keeps a thread busy while others are measured."""

import threading

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "left a thread busy"), "cuda": ("suspect", "left a thread busy")}

started = []


def burn():
    while True:
        sum(range(1000))


@kernel("attention", backend="pytorch")
def busy_thread(q, k, v, *, causal, scale):
    if not started:
        started.append(threading.Thread(target=burn, daemon=True))
        started[0].start()
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
