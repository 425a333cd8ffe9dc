"""Leaves work on the device after its answer: a process of its own queues seconds of it, which no signal stops."""

import subprocess
import sys

import torch.nn.functional as F

from kernels.catalog import kernel

ISOLATED = {"cuda": ("suspect", "left work running on the device")}
BUSY = "import torch\nprint(flush=True)\nwhile True: torch.cuda._sleep(2_000_000_000)"
started = []


@kernel("attention", backend="pytorch")
def keeps_the_device_busy(q, k, v, *, causal, scale):
    if not started:
        started.append(subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE))
        started[0].stdout.readline()
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
