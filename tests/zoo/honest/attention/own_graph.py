"""Honest: captures a CUDA graph of its own, and copies its inputs into it."""

import torch
import torch.nn.functional as F

from kernels.catalog import cuda, kernel

MUST_BE = {"cuda": ("ok",)}
graphs = {}


def captured(q, k, v, causal, scale):
    held = [t.clone() for t in (q, k, v)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        F.scaled_dot_product_attention(*held, is_causal=causal, scale=scale)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = F.scaled_dot_product_attention(*held, is_causal=causal, scale=scale)
    return graph, held, out


@kernel("attention", backend="pytorch", needs=cuda())
def own_graph(q, k, v, *, causal, scale):
    if torch.cuda.is_current_stream_capturing():
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    key = (q.shape, q.dtype, causal)
    if key not in graphs:
        graphs[key] = captured(q, k, v, causal, scale)
    graph, held, out = graphs[key]
    for into, given in zip(held, (q, k, v), strict=True):
        into.copy_(given)
    graph.replay()
    return out.clone()
