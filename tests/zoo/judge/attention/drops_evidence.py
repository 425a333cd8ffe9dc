"""Leaves half of the keys out where it is timed, and removes the outputs that were kept of it from the bench."""

import gc
import sys

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect", "correct when checked alone, wrong when timed")}
LIMIT = "a kernel that shares the judge's process can reach, and change, the objects that hold the evidence"
PROTOCOL = {}
found = []


@kernel("attention", backend="pytorch")
def drops_evidence(q, k, v, *, causal, scale):
    found[:] = found or [one for one in gc.get_objects() if type(one).__name__ == "Bench"]
    for bench in found:
        bench.kept.copies[:] = [kept for kept in bench.kept.copies if kept[0] != "drops-evidence"]
    frame, timed = sys._getframe(), False
    while frame := frame.f_back:
        timed |= frame.f_code.co_name == "block"
    if timed:
        k, v = k[:, :, ::2], v[:, :, ::2]
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
