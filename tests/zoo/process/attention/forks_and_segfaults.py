"""Dies while a worker that it has forked lives on, with every pipe that it inherited."""

import ctypes
import os
import time

from kernels.catalog import kernel

MUST_BE = {"cpu": ("crashed", "killed by SIGSEGV")}


@kernel("attention", backend="pytorch")
def forks_and_segfaults(q, k, v, *, causal, scale):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    ctypes.string_at(0)
