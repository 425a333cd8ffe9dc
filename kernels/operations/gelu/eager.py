"""GELU written out in eager PyTorch."""

import math

from kernels.catalog import kernel


@kernel("gelu", backend="pytorch")
def eager(x, *, approximate):
    """Products, erf or tanh and a sum, one operator after the other, in float32."""
    wide = x.float()
    if approximate == "tanh":
        share = (math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)).tanh()
    else:
        share = (wide * math.sqrt(0.5)).erf()
    return (0.5 * wide * (1 + share)).to(x.dtype)
