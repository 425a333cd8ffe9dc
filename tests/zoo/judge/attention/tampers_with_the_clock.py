"""Finds the clock of the bench and has it say a tenth."""

import gc

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "changed global state: the clock.block: replaced")}


def tenth(block):
    def shorter(*args):
        found = block(*args)
        found.ticks_ns = [tick / 10 for tick in found.ticks_ns]
        return found

    return shorter


@kernel("attention", backend="pytorch")
def tampers_with_the_clock(q, k, v, *, causal, scale):
    for clock in [c for c in gc.get_objects() if type(c).__name__ == "CpuClock" and "block" not in vars(c)]:
        clock.block = tenth(clock.block)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
