from kernels.catalog import kernel


@kernel("rms_norm", backend="pytorch")
def norm_in_float(x, weight, *, eps):
    """Mean of squares in float32."""
    wide = x.float()
    return (wide / (wide.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.float()).to(x.dtype)
