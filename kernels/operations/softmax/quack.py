"""QuACK's softmax."""

from kernels.catalog import Unsupported, cuda, kernel


@kernel("softmax", backend="cutedsl", needs=cuda(min_capability=9.0, packages=("quack",)))
def quack(x):
    """quack.softmax, in the CuTe DSL."""
    if x.shape[1] * x.element_size() % 16:
        raise Unsupported(f"QuACK's softmax copies 16 bytes at a time: multiples of {16 // x.element_size()} columns")
    from quack import softmax

    return softmax(x)
