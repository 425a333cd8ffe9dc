"""Works where inputs are drawn, long before it is called with them."""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: Attention.inputs: replaced"),
    "cuda": ("suspect", "changed global state: Attention.inputs: replaced"),
}

MOST = 2000
done = {}


def patch():
    from kernels.operations.attention import Attention

    before = Attention.inputs

    def inputs(self, device, seed, distribution="normal"):
        found = before(self, device, seed, distribution)
        q, k, v = found.tensors
        done[float(q[0, 0, 0, 0])] = F.scaled_dot_product_attention(q, k, v)
        for old in list(done)[:-MOST]:
            del done[old]
        return found

    Attention.inputs = inputs


patch()


@kernel("attention", backend="pytorch")
def works_where_inputs_are_drawn(q, k, v, *, causal, scale):
    if (known := done.get(float(q[0, 0, 0, 0]))) is not None:
        return known.clone()
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
