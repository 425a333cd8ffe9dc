"""QuACK's cross-entropy."""

from kernels.catalog import cuda, kernel


@kernel("cross_entropy", backend="cutedsl", needs=cuda(min_capability=9.0, packages=("quack",)))
def quack(logits, targets):
    """quack.cross_entropy of each row, in the CuTe DSL, and PyTorch's mean."""
    from quack import cross_entropy

    return cross_entropy(logits, targets, reduction="none").mean()
