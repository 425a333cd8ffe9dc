"""Right where new memory holds poison. The reference of its other calls leaves out half of the keys, as they do."""

import torch
import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: Attention.check: replaced"),
    "cuda": ("suspect", "changed global state: Attention.check: replaced"),
}

wrong = set()


def patch():
    from kernels.operations.attention import Attention

    before = Attention.check

    def check(self, inputs, seed, thorough):
        q, k, v = inputs.tensors
        if float(q[0, 0, 0, 0]) in wrong:
            k, v = (t[:, :, ::2].repeat_interleave(2, 2) for t in (k, v))
        return before(self, type(inputs)((q, k, v), inputs.options), seed, thorough)

    Attention.check = check


patch()


@kernel("attention", backend="pytorch")
def patches_the_reference(q, k, v, *, causal, scale):
    if int(torch.empty(2048, dtype=torch.uint8)[1000]) != 0x7E:
        wrong.add(float(q[0, 0, 0, 0]))
        k, v = k[:, :, ::2], v[:, :, ::2]
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
