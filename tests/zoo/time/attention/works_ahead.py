"""One call works for the next eight, which then only hand over what is there: their median is short, their sum is not.

On a GPU it gains nothing: it does not meet the same sets in the same order often enough.
"""

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {"cpu": ("suspect", "some calls do the work of other calls"), "cuda": ("ok",)}
PROTOCOL = {"min_rounds": 30, "max_rounds": 30, "block_ms": 4.0}

AHEAD = 8
follows, ready, last = {}, {}, []


def at(tensors):
    return tuple(number for t in tensors for number in t[0, 0, 0, :4].tolist())


def place(tensors):
    return tuple(t.data_ptr() for t in tensors)


@kernel("attention", backend="pytorch")
def works_ahead(q, k, v, *, causal, scale):
    now, here = (q, k, v), place((q, k, v))
    if last:
        follows[last[0]] = now
    last[:] = [here]
    if (known := ready.pop(here, None)) and known[0] == at(now):
        return known[1]
    ready.clear()
    following = here
    for _ in range(AHEAD):
        if (soon := follows.get(following)) is None or place(soon) == here:
            break
        ready[place(soon)] = at(soon), F.scaled_dot_product_attention(*soon, is_causal=causal, scale=scale)
        following = place(soon)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
