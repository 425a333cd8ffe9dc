"""Returns at once; a thread writes the output a little later."""

import threading
import time

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("incorrect", "the output changed after the call returned", "calls share one output", "were never written"),
    "cuda": ("incorrect", "the output changed after the call returned", "calls share one output", "were never written"),
}
ISOLATED = {"cpu": ("incorrect", "largest error", "NaN or Inf"), "cuda": ("incorrect", "largest error", "NaN or Inf")}


@kernel("attention", backend="pytorch")
def finished_by_a_thread(q, k, v, *, causal, scale):
    out = torch.empty_like(q)

    def work():
        time.sleep(0.001)
        out.copy_(F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale))

    threading.Thread(target=work).start()
    return out
