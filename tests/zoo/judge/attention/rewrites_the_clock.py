"""Has the bench's clock run other code, by which every call takes a microsecond."""

import sys

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "changed global state: CpuClock.block: rewritten")}


def block(self, call, indices, gate_ns, flush, keep):
    outputs = [call(index) for index in indices]
    return Block([1e3] * len(indices), kept=None if keep is None else outputs[keep])  # noqa: F821


@kernel("attention", backend="pytorch")
def rewrites_the_clock(q, k, v, *, causal, scale):
    for clock in {vars(module).get("CpuClock") for module in list(sys.modules.values())} - {None}:
        clock.block.__code__ = block.__code__
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
