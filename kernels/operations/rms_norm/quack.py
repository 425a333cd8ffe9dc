"""QuACK's RMSNorm."""

from kernels.catalog import cuda, kernel


@kernel("rms_norm", backend="cutedsl", needs=cuda(min_capability=9.0, packages=("quack",)))
def quack(x, weight, *, eps):
    """quack.rmsnorm, in the CuTe DSL."""
    from quack import rmsnorm

    return rmsnorm(x, weight=weight, eps=eps)
