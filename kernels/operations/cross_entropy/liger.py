"""Liger Kernel's cross-entropy. Its loss has the dtype of the logits, and so has each row's: float32 only."""

from kernels.catalog import cuda, kernel


@kernel(
    "cross_entropy",
    backend="triton",
    dtypes=("float32",),
    needs=cuda(min_capability=8.0, packages=("liger_kernel",)),
)
def liger(logits, targets):
    """liger_kernel: liger_cross_entropy, in Triton; in 16 bits it would round each row's loss, so float32 only."""
    from liger_kernel.transformers.functional import liger_cross_entropy

    return liger_cross_entropy(logits, targets)
