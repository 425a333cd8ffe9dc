"""Leaves a thread that waits for the rounds, and then writes an answer into every pipe while another kernel runs."""

import contextlib
import os
import threading
import time

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "code other than the instrument wrote to the answer pipe"),
    "cuda": ("suspect", "code other than the instrument wrote to the answer pipe"),
}
PROTOCOL = {"min_rounds": 10, "max_rounds": 10}

IN_THE_ROUNDS = 120
calls = []


def forge():
    while len(calls) < IN_THE_ROUNDS or time.monotonic() - calls[-1] < 0.003:
        time.sleep(0.001)
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if fd > 2 and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                os.write(fd, b'{"ok": {}}\n')


@kernel("attention", backend="pytorch")
def forges_while_others_run(q, k, v, *, causal, scale):
    calls.append(time.monotonic())
    if len(calls) == 1:
        threading.Thread(target=forge, daemon=True).start()
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
