"""QuACK's RMSNorm."""

from kernels.catalog import Unsupported, cuda, kernel


@kernel("rms_norm", backend="cutedsl", needs=cuda(min_capability=9.0, packages=("quack",)))
def quack(x, weight, *, eps):
    """quack.rmsnorm, in the CuTe DSL."""
    if x.shape[1] * x.element_size() % 4:
        raise Unsupported("QuACK copies at least 4 bytes at a time: in 16 bits it does even numbers of columns")
    from quack import rmsnorm

    return rmsnorm(x, weight=weight, eps=eps)
