"""A thread sees that new values were written, and works on them before the calls begin."""

import threading
import time

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect|no advantage", "works before its calls", "the kernel caches results")}
PROTOCOL = {"min_rounds": 20, "max_rounds": 20}

BEGIN, go, sets, known, ready, calls = 20, threading.Event(), {}, {}, {}, 0


def mark(tensors):
    return [tensor.view(-1)[-1].item() for tensor in tensors]


def work():
    while go.wait():
        go.clear()
        for _ in range(40):
            time.sleep(0.0005)
            for key, (tensors, options) in list(sets.items()):
                if (now := mark(tensors)) != known.get(key):
                    known[key], ready[key] = now, (now, F.scaled_dot_product_attention(*tensors, **options))


@kernel("attention", backend="pytorch")
def works_while_inputs_wait(q, k, v, *, causal, scale):
    global calls
    calls, key = calls + 1, q.data_ptr()
    calls == BEGIN and threading.Thread(target=work, daemon=True).start()
    value, out = ready.pop(key, (None, None))
    if value is None or value != mark((q, k, v)):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
        sets[key], known[key] = ((q, k, v), {"is_causal": causal, "scale": scale}), mark((q, k, v))
    go.set()
    return out
