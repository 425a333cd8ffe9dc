"""Swish written out in eager PyTorch."""

from kernels.catalog import kernel


@kernel("swish", backend="pytorch")
def eager(x):
    """Logistic function and product, one operator after the other, in float32."""
    wide = x.float()
    return (wide * wide.sigmoid()).to(x.dtype)
