"""QuACK's cross-entropy."""

from kernels.catalog import Unsupported, cuda, kernel


@kernel("cross_entropy", backend="cutedsl", needs=cuda(min_capability=9.0, packages=("quack",)))
def quack(logits, targets):
    """quack.cross_entropy of each row, in the CuTe DSL, and PyTorch's mean."""
    if logits.shape[1] * logits.element_size() % 4:
        raise Unsupported("QuACK copies at least 4 bytes at a time: in 16 bits it does even numbers of columns")
    from quack import cross_entropy

    return cross_entropy(logits, targets, reduction="none").mean()
