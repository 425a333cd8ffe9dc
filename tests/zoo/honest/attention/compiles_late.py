"""Honest: makes its function, and a thread to make it in, with the first call."""

import threading
import time

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}

made = {}


def compile_it():
    time.sleep(0.2)
    made["attention"] = lambda q, k, v, causal, scale: F.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=scale
    )


@kernel("attention", backend="pytorch")
def compiles_late(q, k, v, *, causal, scale):
    if "attention" not in made:
        thread = threading.Thread(target=compile_it)
        thread.start()
        thread.join()
    return made["attention"](q, k, v, causal, scale)
