"""Honest: begins a process with its first call, as compilers do, which is at work for a while and then waits."""

import subprocess
import sys

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}

HELPER = """
import time
end = time.monotonic() + 8
while time.monotonic() < end:
    pass
time.sleep(600)
"""
started = []


@kernel("attention", backend="pytorch")
def starts_a_helper(q, k, v, *, causal, scale):
    if not started:
        started.append(subprocess.Popen([sys.executable, "-c", HELPER]))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
