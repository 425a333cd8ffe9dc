"""Reads the caller's frame: while it is timed, it works only for an output that is named there to be kept."""

import sys

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

ISOLATED = {
    "cpu": ("incorrect", "correct when checked alone, wrong when timed: "),
    "cuda": ("no effect",),
}


def is_idle(frame):
    while frame:
        names = frame.f_locals
        if frame.f_code.co_name == "block" and "ticks" in names:
            return names.get("position") != names.get("keep") and names["ticks"]
        if frame.f_code.co_name == "arm" and "begin" in names:
            return names["index"] % 2
        frame = frame.f_back
    return False


@kernel("attention", backend="pytorch")
def reads_frames(q, k, v, *, causal, scale):
    if is_idle(sys._getframe(1)):
        return torch.empty_like(q)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
