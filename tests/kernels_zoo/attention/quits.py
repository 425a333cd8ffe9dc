"""Leaves politely."""

import sys

from kernels.catalog import kernel


@kernel("attention", backend="pytorch")
def quits(q, k, v, *, causal, scale):
    sys.exit("no device that suits me")
