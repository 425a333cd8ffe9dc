"""Liger Kernel's softmax."""

from kernels.catalog import cuda, kernel


@kernel("softmax", backend="triton", needs=cuda(min_capability=8.0, packages=("liger_kernel",)))
def liger(x):
    """liger_kernel: liger_softmax, in Triton."""
    from liger_kernel.transformers.functional import liger_softmax

    return liger_softmax(x)
