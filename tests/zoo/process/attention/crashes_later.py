"""Right as long as it is only checked: dies once it is called often."""

import os
import signal

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("crashed", "killed by SIGABRT")}

CHECKS = 10
calls = []


@kernel("attention", backend="pytorch")
def crashes_later(q, k, v, *, causal, scale):
    calls.append(len(calls))
    if len(calls) > CHECKS:
        os.kill(os.getpid(), signal.SIGABRT)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
