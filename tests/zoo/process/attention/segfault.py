"""Reads address 0, as a CUDA extension with a bad pointer does."""

import ctypes

from kernels.catalog import kernel

MUST_BE = {"cpu": ("crashed", "killed by SIGSEGV")}


@kernel("attention", backend="pytorch")
def segfault(q, k, v, *, causal, scale):
    print("about to follow a null pointer", flush=True)
    return ctypes.string_at(0)
