"""RMSNorm written out in eager PyTorch."""

from kernels.catalog import kernel


@kernel("rms_norm", backend="pytorch")
def eager(x, weight, *, eps):
    """Square, mean, rsqrt and two products, one operator after the other, in float32."""
    wide = x.float()
    spread = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return (wide * spread * weight.float()).to(x.dtype)
