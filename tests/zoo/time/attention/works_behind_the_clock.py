"""In a block, calls do half of their work; a thread queues the other half behind the last event, before anybody looks."""

import threading
import time

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cuda": ("incorrect|suspect", "wrong when timed", "the output changed after the call returned")}
PROTOCOL = {"mode": "cold", "min_rounds": 20, "max_rounds": 20, "block_ms": 3.0}

FIRST, LAST, LOOKS, PAUSE_NS, IDLE_NS = 3, 60, 200, 400_000, 150_000
go, left, state = threading.Event(), [], {"at": 0, "calls": 0}


def work():
    while go.wait() and go.clear() is None:
        for _ in range(LOOKS):
            time.sleep(0.00003)
            while left and time.perf_counter_ns() - state["at"] > IDLE_NS:
                rest, out, options = left.pop()
                out.copy_(F.scaled_dot_product_attention(*rest, **options))


@kernel("attention", backend="pytorch")
def works_behind_the_clock(q, k, v, *, causal, scale):
    state["calls"] or threading.Thread(target=work, daemon=True).start()
    state["calls"] = 1 if time.perf_counter_ns() - state["at"] > PAUSE_NS else state["calls"] + 1
    options = {"is_causal": causal, "scale": scale}
    if not FIRST <= state["calls"] <= LAST:
        out = F.scaled_dot_product_attention(q, k, v, **options)
    else:
        half, out = q.shape[1] // 2, torch.empty_like(q)
        out[:, :half] = F.scaled_dot_product_attention(q[:, :half], k[:, :half], v[:, :half], **options)
        left.append(((q[:, half:], k[:, half:], v[:, half:]), out[:, half:], options))
        go.set()
    state["at"] = time.perf_counter_ns()
    return out
