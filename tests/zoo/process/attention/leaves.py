"""Leaves politely."""

import sys

from kernels.catalog import kernel

MUST_BE = {"cpu": ("crashed", "exited with status 1")}
ISOLATED = {"cpu": ("crashed", "exited with status 1"), "cuda": ("crashed", "exited with status 1")}


@kernel("attention", backend="pytorch")
def leaves(q, k, v, *, causal, scale):
    sys.exit("no device that suits me")
