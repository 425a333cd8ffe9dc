"""A thread sees on a stream of its own that new values were written, and works on them before the calls begin."""

import threading
import time

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cuda": ("suspect|no advantage", "works before its calls", "the kernel caches results")}
PROTOCOL = {"mode": "cold", "min_rounds": 20, "max_rounds": 20}

BEGIN, LOOKS, go = 20, 200, threading.Event()
sets, known, ready, calls = {}, {}, {}, 0


def work():
    with torch.cuda.stream(torch.cuda.Stream()):
        while go.wait():
            go.clear()
            for _ in range(LOOKS):
                time.sleep(0.0001)
                look()


def look():
    there = list(sets.items())
    marks = torch.stack([tensor.view(-1)[-1] for _, (tensors, _) in there for tensor in tensors]).tolist()
    for number, (key, (tensors, options)) in enumerate(there):
        if (now := marks[3 * number : 3 * number + 3]) != known.get(key):
            out = F.scaled_dot_product_attention(*tensors, **options)
            torch.cuda.current_stream().synchronize()
            known[key], ready[key] = now, out


@kernel("attention", backend="pytorch")
def works_on_a_stream_while_inputs_wait(q, k, v, *, causal, scale):
    global calls
    calls, key = calls + 1, q.data_ptr()
    if calls == BEGIN:
        threading.Thread(target=work, daemon=True).start()
    sets.setdefault(key, ((q, k, v), {"is_causal": causal, "scale": scale}))
    go.set()
    if (out := ready.pop(key, None)) is None:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    return out
