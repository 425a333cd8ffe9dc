"""Reads address 0, as an extension with a bad pointer does."""

import ctypes

from kernels.catalog import kernel


@kernel("attention", backend="pytorch")
def segfault(q, k, v, *, causal, scale):
    return ctypes.string_at(0)
