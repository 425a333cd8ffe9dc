"""PyTorch's scaled_dot_product_attention: as it chooses for itself, and with each backend forced.

Which backend the default takes depends on the torch build, the dtype and the strides: the run page shows the kernel
that ran, not a guess.

There is no argument for a sliding window. The window is a boolean mask of S x S then, kept from call to call, and grouped
key/value heads are repeated within the call, as Hugging Face's models do it: fused backends take no mask with groups. So
blocks outside of the window are computed, too.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.catalog import Unsupported, cuda, kernel


@lru_cache(maxsize=2)
def _band(length, causal, window, device):
    """True where a query sees a key, (S, S). A model makes it once for all layers, so it is made before timed calls."""
    rows, keys = torch.arange(length, device=device)[:, None], torch.arange(length, device=device)
    return (keys > rows - window) & (keys < rows + (1 if causal else window))


def _sdpa(q, k, v, causal, scale, window):
    if not window:
        gqa = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=gqa)
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return F.scaled_dot_product_attention(q, k, v, _band(q.shape[2], causal, window, q.device), scale=scale)


def _forced(backend, q, k, v, causal, scale, window):
    try:
        with sdpa_kernel(backend):
            return _sdpa(q, k, v, causal, scale, window)
    except RuntimeError as error:
        if "No available kernel" in str(error):
            raise Unsupported(f"PyTorch's {backend.name} backend does not do this workload here") from None
        raise


@kernel("attention", backend="pytorch")
def sdpa(q, k, v, *, causal, scale, window=0):
    """scaled_dot_product_attention, backend chosen by PyTorch."""
    return _sdpa(q, k, v, causal, scale, window)


@kernel("attention", backend="pytorch")
def sdpa_flash(q, k, v, *, causal, scale, window=0):
    """scaled_dot_product_attention, FlashAttention backend forced."""
    return _forced(SDPBackend.FLASH_ATTENTION, q, k, v, causal, scale, window)


@kernel("attention", backend="pytorch", dtypes=("float16", "bfloat16"), needs=cuda(min_capability=8.0))
def sdpa_cudnn(q, k, v, *, causal, scale, window=0):
    """scaled_dot_product_attention, cuDNN backend forced."""
    return _forced(SDPBackend.CUDNN_ATTENTION, q, k, v, causal, scale, window)


@kernel("attention", backend="pytorch", needs=cuda(min_capability=5.0))
def sdpa_efficient(q, k, v, *, causal, scale, window=0):
    """scaled_dot_product_attention, memory-efficient backend forced."""
    return _forced(SDPBackend.EFFICIENT_ATTENTION, q, k, v, causal, scale, window)


@kernel("attention", backend="pytorch")
def sdpa_math(q, k, v, *, causal, scale, window=0):
    """scaled_dot_product_attention, unfused math backend forced."""
    return _forced(SDPBackend.MATH, q, k, v, causal, scale, window)
