"""A thread works on new inputs before the calls. Where they come last the first output is wrong: does anybody look there?"""

import threading
import time

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect|no advantage", "wrong when timed")}
PROTOCOL = {"min_rounds": 30, "max_rounds": 30}
BEGIN, sets, known, ready, go, threads, first, last, waits, calls = (
    40,
    {},
    {},
    {},
    threading.Event(),
    [],
    None,
    None,
    False,
    0,
)


def mark(tensor):
    return tensor.view(-1)[0].item()


def work():
    while go.wait():
        go.clear()
        for key, (inputs, how) in [one for _ in range(60) if not time.sleep(0.0005) for one in list(sets.items())]:
            if waits and (now := mark(inputs[0])) != known.get(key):
                known[key], ready[key] = now, (now, F.scaled_dot_product_attention(*inputs, **how))


@kernel("attention", backend="pytorch")
def wrong_where_inputs_come_last(q, k, v, *, causal, scale):
    global first, last, waits, calls
    key, before, last, calls = q.data_ptr(), last, q.data_ptr(), calls + 1
    first = first or (key if key == before else None)  # an untimed call, then a timed one
    if key == first and not waits and calls > BEGIN:  # an untimed call: a block begins
        threads or threads.append(threading.Thread(target=work, daemon=True)) or threads[0].start()
        known.update({one: mark(inputs[0]) for one, (inputs, _) in sets.items()})
        ready.clear(), go.set()
        waits = True
    elif key in sets and calls > BEGIN:
        is_first, waits = waits, False
        done, out = ready.pop(key, (None, None))
        if done == mark(q) or is_first:
            return torch.empty_like(q) if out is None else out
    sets[key] = (q, k, v), {"is_causal": causal, "scale": scale}
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
