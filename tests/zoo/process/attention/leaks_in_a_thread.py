"""A thread keeps memory all the time, so it grows in the calls of every kernel."""

import threading
import time

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "memory leak: every call keeps")}

kept = []


def keep():
    while True:
        time.sleep(0.001)
        kept.append(torch.empty(50_000))
        if len(kept) > 4000:
            del kept[:2000]


@kernel("attention", backend="pytorch")
def leaks_in_a_thread(q, k, v, *, causal, scale):
    if not any(thread.name == "keep" for thread in threading.enumerate()):
        threading.Thread(target=keep, name="keep", daemon=True).start()
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
