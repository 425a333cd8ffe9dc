"""Liger Kernel's LayerNorm."""

from kernels.catalog import cuda, kernel


@kernel("layer_norm", backend="triton", needs=cuda(min_capability=8.0, packages=("liger_kernel",)))
def liger(x, weight, bias, *, eps):
    """liger_kernel: liger_layer_norm, in Triton."""
    from liger_kernel.transformers.functional import liger_layer_norm

    return liger_layer_norm(x, weight, bias, eps)
