"""Leaves without a word."""

import os

from kernels.catalog import kernel

MUST_BE = {"cpu": ("crashed", "exited with status 3")}


@kernel("attention", backend="pytorch")
def exits(q, k, v, *, causal, scale):
    os._exit(3)
