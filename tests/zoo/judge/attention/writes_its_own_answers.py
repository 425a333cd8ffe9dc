"""Has the answers that go to the parent written by a function of its own, which shortens its times."""

import torch.nn.functional as F

from kernels.catalog import kernel
from kernels.contract import replies

MUST_BE = {
    "cpu": ("suspect", "changed global state: TimedBlock.model_dump: replaced"),
    "cuda": ("suspect", "changed global state: TimedBlock.model_dump: replaced"),
}

own = replies.TimedBlock.model_dump
state = {"mine": False}


def shorter(self, **options):
    ticks = own(self, **options)
    if state.pop("mine", False):
        ticks["ticks_ns"] = [tick / 2 for tick in ticks["ticks_ns"]]
    return ticks


replies.TimedBlock.model_dump = shorter


@kernel("attention", backend="pytorch")
def writes_its_own_answers(q, k, v, *, causal, scale):
    state["mine"] = True
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
