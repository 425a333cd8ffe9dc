"""Keeps a process busy while others are measured."""

import subprocess
import sys

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "left a process busy")}

started = []


@kernel("attention", backend="pytorch")
def busy_process(q, k, v, *, causal, scale):
    if not started:
        started.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
