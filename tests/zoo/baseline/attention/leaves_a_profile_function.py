"""Leaves a profile function, which runs at each call of a Python function; it is off while this one works."""

import sys

import torch.nn.functional as F

from kernels.catalog import kernel

MUST_BE = {
    "cpu": ("suspect", "changed global state: profile function"),
    "cuda": ("suspect", "changed global state: profile function"),
}


def slowly(frame, event, argument):
    sum(range(1000))


@kernel("attention", backend="pytorch")
def leaves_a_profile_function(q, k, v, *, causal, scale):
    sys.setprofile(None)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    sys.setprofile(slowly)
    return out
