"""From the third call in a row on, a child computes the output after the call has returned."""

import os
import time

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

ISOLATED = {"cpu": ("suspect", "started in a timed batch ran on after the batch's end")}

PAUSE_S, HONEST, LATE_S = 0.02, 2, 0.02
last, in_a_row = 0.0, 0


@kernel("attention", backend="pytorch")
def works_on_in_children(q, k, v, *, causal, scale):
    global last, in_a_row
    in_a_row, last = (in_a_row if time.monotonic() - last < PAUSE_S else 0) + 1, time.monotonic()
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    if in_a_row > HONEST:
        late = torch.zeros_like(out).share_memory_()
        if os.fork() == 0:
            time.sleep(LATE_S)
            late.numpy()[...] = out.numpy()
            os._exit(0)
        out = late
    last = time.monotonic()
    return out
