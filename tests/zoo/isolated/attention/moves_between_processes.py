"""A worker that starts another process and ends, again and again: who lists processes and stops them finds only ended ones."""

import ctypes
import signal
import subprocess
import sys

import torch.nn.functional as F

from kernels.catalog import kernel

ISOLATED = {
    "cpu": ("suspect", "process that it", "processes that it", "a process began while its processes were stopped"),
    "cuda": ("suspect", "process that it", "processes that it", "a process began while its processes were stopped"),
}

ADOPTS_ORPHANS = 36
HOPS = "import os, time\nend = time.time() + 300\nwhile time.time() < end:\n    if os.fork(): os._exit(0)"
started = []


@kernel("attention", backend="pytorch")
def moves_between_processes(q, k, v, *, causal, scale):
    if not started:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system removes ended ones at once
        ctypes.CDLL(None).prctl(ADOPTS_ORPHANS, 1, 0, 0, 0)
        started.append(subprocess.Popen([sys.executable, "-c", HOPS]))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
