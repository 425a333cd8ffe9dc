"""While a graph is captured, each call forks from the first one instead of waiting for the one before it: a replay runs them
beside each other, and its time says little about one call."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cuda": ("suspect", "its calls overlap in a graph")}
PROTOCOL = {"mode": "graph"}

STREAMS = 8
streams, start, calls = [], {}, 0


@kernel("attention", backend="pytorch")
def overlaps_in_a_graph(q, k, v, *, causal, scale):
    global calls
    if not torch.cuda.is_current_stream_capturing():
        start.clear()
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    main = torch.cuda.current_stream()
    if not start:
        start["event"] = torch.cuda.Event()
        start["event"].record(main)
        streams[:] = streams or [torch.cuda.Stream() for _ in range(STREAMS)]
    calls, side = calls + 1, streams[calls % STREAMS]
    side.wait_event(start["event"])
    with torch.cuda.stream(side):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    main.wait_stream(side)
    return out
