"""Lowers the limit of the address space to what is there and 300 MB, from its call 30 on: the next kernel runs out of memory."""

import resource
from pathlib import Path

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: limits of the process: RLIMIT_AS "),
    "cuda": ("suspect", "changed global state: limits of the process: RLIMIT_AS "),
}
ISOLATED = {"cpu": ("no effect",), "cuda": ("no effect",)}
calls = []


@kernel("attention", backend="pytorch")
def limits_the_memory_of_others(q, k, v, *, causal, scale):
    calls.append(None)
    if len(calls) == 30:
        there = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (there + 300 * 2**20, resource.RLIM_INFINITY))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
