"""A thread keeps the results of known inputs fresh while nobody calls: during rests there is time for it."""

import threading
import time

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("incorrect", "correct when checked alone, wrong when timed"),
    "cuda": (  # its thread launches at any moment, also while a graph is captured
        "incorrect|suspect|crashed",
        "correct when checked alone, wrong when timed",
        "changed global state: caching allocator",
        "operation failed due to a previous error during capture",
    ),
}
PROTOCOL = {}

known = {}
RECENT, PAUSE_S = 4, 0.03


def freshen():
    while True:
        time.sleep(PAUSE_S)
        for inputs, options, out in list(known.values())[-RECENT:]:
            out.copy_(F.scaled_dot_product_attention(*inputs, **options))


@kernel("attention", backend="pytorch")
def works_in_pauses(q, k, v, *, causal, scale):
    key = (q.data_ptr(), k.data_ptr(), v.data_ptr())
    if key not in known:
        if not known:
            threading.Thread(target=freshen, daemon=True).start()
        options = {"is_causal": causal, "scale": scale}
        known[key] = (q, k, v), options, F.scaled_dot_product_attention(q, k, v, **options)
    return known[key][2].clone()
