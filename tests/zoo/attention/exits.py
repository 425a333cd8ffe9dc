"""Leaves without a word."""

import os

from kernels.catalog import kernel


@kernel("attention", backend="pytorch")
def exits(q, k, v, *, causal, scale):
    os._exit(3)
