"""Liger Kernel's RMSNorm."""

from kernels.catalog import cuda, kernel


@kernel("rms_norm", backend="triton", needs=cuda(min_capability=8.0, packages=("liger_kernel",)))
def liger(x, weight, *, eps):
    """liger_kernel: liger_rms_norm, in Triton; all arithmetic in float32 (casting mode "gemma")."""
    from liger_kernel.transformers.functional import liger_rms_norm

    return liger_rms_norm(x, weight, eps, casting_mode="gemma")
