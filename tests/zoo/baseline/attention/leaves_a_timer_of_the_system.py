"""A timer that getitimer does not know interrupts others, by a function of the C library. Its own calls have none."""

import ctypes
import time

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: timers of the system: "),
    "cuda": ("suspect", "changed global state: timers of the system: "),
}

libc, timer, SIGNAL = ctypes.CDLL(None), ctypes.c_void_p(), 40
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.signal(SIGNAL, ctypes.cast(libc.usleep, ctypes.c_void_p))
libc.timer_create(time.CLOCK_MONOTONIC, (ctypes.c_int * 16)(0, 0, SIGNAL), ctypes.byref(timer))
NEVER, OFTEN = (ctypes.c_long * 4)(), (ctypes.c_long * 4)(0, 200_000, 0, 2_000_000)


@kernel("attention", backend="pytorch")
def leaves_a_timer_of_the_system(q, k, v, *, causal, scale):
    libc.timer_settime(timer, 0, NEVER, None)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    libc.timer_settime(timer, 0, OFTEN, None)
    return out
