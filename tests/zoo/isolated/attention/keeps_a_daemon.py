"""Leaves a process that belongs to no group of its own process, and works on."""

import os
import subprocess
import sys

import torch.nn.functional as F

from kernels.catalog import kernel

ISOLATED = {"cpu": ("no effect",), "cuda": ("no effect",)}

WORKS = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n" + (
    "end = time.time() + 300\nwhile time.time() < end: pass"
)
started = []


@kernel("attention", backend="pytorch")
def keeps_a_daemon(q, k, v, *, causal, scale):
    if not started:
        started.append(subprocess.run([sys.executable, "-c", WORKS + "  # left by a kernel", str(os.getpid())]))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
