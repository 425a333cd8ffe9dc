"""A thread sees on a stream of its own that new values were written, and works on them before the calls begin."""

import threading
import time

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cuda": ("incorrect|suspect|no advantage", "wrong when timed", "works before its calls", "caches results")}
PROTOCOL = {"mode": "cold", "min_rounds": 20, "max_rounds": 20}

BEGIN, LOOKS, go = 20, 200, threading.Event()
sets, seen, known, ready = {}, {}, {}, {}


def work():
    with torch.cuda.stream(torch.cuda.Stream()):
        while go.wait() and go.clear() is None:
            for _ in range(LOOKS):
                time.sleep(0.0001)
                for key, (tensors, options) in list(sets.items()):
                    now = [tensor.view(-1)[-1].item() for tensor in tensors]
                    if now == seen.get(key) != known.get(key):  # new, and all written since the last look
                        out = F.scaled_dot_product_attention(*tensors, **options)
                        torch.cuda.current_stream().synchronize()
                        known[key], ready[key] = now, out
                    seen[key] = now


@kernel("attention", backend="pytorch")
def works_on_a_stream_while_inputs_wait(q, k, v, *, causal, scale):
    sets[q.data_ptr()] = (q, k, v), {"is_causal": causal, "scale": scale}
    known["calls"] = calls = known.get("calls", 0) + 1
    calls == BEGIN and threading.Thread(target=work, daemon=True).start()
    go.set()
    out = ready.pop(q.data_ptr(), None)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale) if out is None else out
