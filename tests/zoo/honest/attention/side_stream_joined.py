"""Honest: works on a stream of its own, and both streams wait for each other."""

import torch
import torch.nn.functional as F

from kernels.catalog import cuda, kernel

MUST_BE = {"cuda": ("ok",)}

streams = []


@kernel("attention", backend="pytorch", needs=cuda())
def side_stream_joined(q, k, v, *, causal, scale):
    if not streams:
        streams.append(torch.cuda.Stream())
    streams[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(streams[0]):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    torch.cuda.current_stream().wait_stream(streams[0])
    out.record_stream(torch.cuda.current_stream())
    return out
