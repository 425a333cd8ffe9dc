"""Waits for its stream where it is being checked alone, and not where it is timed."""

import sys

import torch
import torch.nn.functional as F

from kernels.catalog import cuda, kernel

MUST_BE = {"cuda": ("incorrect", "correct when checked alone, wrong when timed: the output changed after")}

streams = []


@kernel("attention", backend="pytorch", needs=cuda())
def side_stream_when_timed(q, k, v, *, causal, scale):
    if not streams:
        streams.append(torch.cuda.Stream())
    frame, checked = sys._getframe(), False
    while frame := frame.f_back:
        checked |= frame.f_code.co_name == "verify"
    streams[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(streams[0]):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    if checked:
        torch.cuda.current_stream().wait_stream(streams[0])
    return out
