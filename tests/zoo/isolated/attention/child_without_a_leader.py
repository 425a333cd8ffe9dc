"""A child whose first thread has ended looks like a zombie. Its other thread spins, to slow others down."""

import ctypes
import os
import threading

import torch.nn.functional as F

from kernels.catalog import kernel

ISOLATED = {"cpu": ("no effect",), "cuda": ("no effect",)}

EXIT = {"x86_64": 60}.get(os.uname().machine, 93)
"""Number of the system call that ends one thread."""


def spin():
    while True:
        pass


if os.fork() == 0:
    threading.Thread(target=spin).start()
    ctypes.CDLL(None).syscall(EXIT, 0)


@kernel("attention", backend="pytorch")
def child_without_a_leader(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
