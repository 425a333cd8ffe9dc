"""Honest: its first call answers at once, while a thread is busy for three seconds, as with tiered compilers."""

import threading
import time

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}

started = []


def compile_it():
    end = time.monotonic() + 3
    while time.monotonic() < end:
        pass


@kernel("attention", backend="pytorch")
def compiles_in_a_thread(q, k, v, *, causal, scale):
    if not started:
        started.append(threading.Thread(target=compile_it, daemon=True))
        started[0].start()
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
