"""QuACK's softmax."""

from kernels.catalog import cuda, kernel


@kernel("softmax", backend="cutedsl", needs=cuda(min_capability=9.0, packages=("quack",)))
def quack(x):
    """quack.softmax, in the CuTe DSL."""
    from quack import softmax

    return softmax(x)
