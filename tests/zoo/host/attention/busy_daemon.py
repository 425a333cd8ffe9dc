"""Keeps a daemon busy, which has left its session and its parent, while others are measured."""

import subprocess
import sys

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "left a process busy")}

DAEMON = "import os; os.setsid(); os.fork() and os._exit(0); print('daemon', os.getpid(), flush=True)\nwhile True: pass"
started = []


@kernel("attention", backend="pytorch")
def busy_daemon(q, k, v, *, causal, scale):
    if not started:
        started.append(subprocess.run([sys.executable, "-c", DAEMON]))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
