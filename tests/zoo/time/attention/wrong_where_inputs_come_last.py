"""A thread works on new inputs before the calls. Where they come last the first output is wrong: does anybody look there?"""

import threading
import time
from collections import Counter

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("incorrect|no advantage", "wrong when timed")}
PROTOCOL = {"min_rounds": 30, "max_rounds": 30}
often, sets, known, ready, at, go, threads = Counter(), {}, {}, {}, [9], threading.Event(), []


def work():
    while go.wait():
        go.clear()
        for key, (inputs, how) in [one for _ in range(60) if not time.sleep(0.0005) for one in list(sets.items())]:
            if at[0] == 0 and (now := inputs[0].view(-1)[0].item()) != known.get(key):
                known[key], ready[key] = now, (now, F.scaled_dot_product_attention(*inputs, **how))


@kernel("attention", backend="pytorch")
def wrong_where_inputs_come_last(q, k, v, *, causal, scale):
    key, value, how = q.data_ptr(), q.view(-1)[0].item(), {"is_causal": causal, "scale": scale}
    often[value] += 1
    if often[value] > 14:  # the untimed call before a block: its values are always the same
        known.update(dict.fromkeys(sets, value)), ready.clear(), go.set()
        threads or threads.append(threading.Thread(target=work, daemon=True)) or threads[0].start()
        at[0] = 0
    elif at[0] < 8:
        first, at[0] = at[0] == 0, at[0] + 1
        done, out = ready.pop(key, (None, None))
        if done == value or (first and key in sets):
            return torch.empty_like(q) if out is None else out
        sets[key] = (q, k, v), how
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
