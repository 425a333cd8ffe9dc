"""PyTorch's scaled_dot_product_attention: as it chooses for itself, and with each backend forced.

Which backend the default takes depends on the torch build, the dtype and the strides: the run page shows the kernel
that ran, not a guess.
"""

import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.catalog import Unsupported, cuda, kernel


def _sdpa(q, k, v, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1])


def _forced(backend, q, k, v, causal, scale):
    try:
        with sdpa_kernel(backend):
            return _sdpa(q, k, v, causal, scale)
    except RuntimeError as error:
        if "No available kernel" in str(error):
            raise Unsupported(f"PyTorch's {backend.name} backend does not do this workload here") from None
        raise


@kernel("attention", backend="pytorch")
def sdpa(q, k, v, *, causal, scale):
    """scaled_dot_product_attention, backend chosen by PyTorch."""
    return _sdpa(q, k, v, causal, scale)


@kernel("attention", backend="pytorch")
def sdpa_flash(q, k, v, *, causal, scale):
    """scaled_dot_product_attention, FlashAttention backend forced."""
    return _forced(SDPBackend.FLASH_ATTENTION, q, k, v, causal, scale)


@kernel("attention", backend="pytorch", dtypes=("float16", "bfloat16"), needs=cuda(min_capability=8.0))
def sdpa_cudnn(q, k, v, *, causal, scale):
    """scaled_dot_product_attention, cuDNN backend forced."""
    return _forced(SDPBackend.CUDNN_ATTENTION, q, k, v, causal, scale)


@kernel("attention", backend="pytorch", needs=cuda(min_capability=5.0))
def sdpa_efficient(q, k, v, *, causal, scale):
    """scaled_dot_product_attention, memory-efficient backend forced."""
    return _forced(SDPBackend.EFFICIENT_ATTENTION, q, k, v, causal, scale)


@kernel("attention", backend="pytorch")
def sdpa_math(q, k, v, *, causal, scale):
    """scaled_dot_product_attention, unfused math backend forced."""
    return _forced(SDPBackend.MATH, q, k, v, causal, scale)
