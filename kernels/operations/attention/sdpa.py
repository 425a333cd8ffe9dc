"""PyTorch's scaled_dot_product_attention: as it chooses for itself, and with each backend forced.

Which backend the default takes depends on the torch build, the dtype and the strides: the run page shows the kernel
that ran, not a guess.

With more keys than queries, causal queries are the last ones: PyTorch's own bias says so, which the flash backend knows. A
single query sees every key.

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
def _band(queries, length, causal, window, device):
    """True where a query sees a key, (S, Skv). A model makes it once for all layers, so it is made before timed calls."""
    keys = torch.arange(length, device=device)
    rows = keys[length - queries :, None]
    seen = keys < rows + (1 if causal else window)
    return seen & (keys > rows - window) if window else seen


@lru_cache(maxsize=1)
def _bias():
    """PyTorch's module of biases. It imports the compiler, which takes a second or more: only workloads that need it wait."""
    from torch.nn.attention import bias

    return bias


def _sdpa(q, k, v, causal, scale, window, biased=True):
    """biased: the backend may be the flash backend, which knows PyTorch's bias of the last queries."""
    causal = causal and q.shape[2] > 1
    gqa, longer = q.shape[1] != k.shape[1], causal and q.shape[2] != k.shape[2]
    if not (window or longer):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=gqa)
    if not window and biased and q.is_cuda:
        last = _bias().causal_lower_right(q.shape[2], k.shape[2])
        return F.scaled_dot_product_attention(q, k, v, last, scale=scale, enable_gqa=gqa)
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return F.scaled_dot_product_attention(q, k, v, _band(q.shape[2], k.shape[2], causal, window, q.device), scale=scale)


def _forced(backend, q, k, v, causal, scale, window):
    try:
        with sdpa_kernel(backend):
            return _sdpa(q, k, v, causal, scale, window, backend == SDPBackend.FLASH_ATTENTION)
    except RuntimeError as error:
        if "No available kernel" in str(error):
            raise Unsupported(f"PyTorch's {backend.name} backend does not do this workload here") from None
        raise


@kernel("attention", backend="pytorch")
def sdpa(q, k, v, *, causal, scale, window=0, kv_len=0):
    """scaled_dot_product_attention, backend chosen by PyTorch."""
    return _sdpa(q, k, v, causal, scale, window)


@kernel("attention", backend="pytorch")
def sdpa_flash(q, k, v, *, causal, scale, window=0, kv_len=0):
    """scaled_dot_product_attention, FlashAttention backend forced."""
    return _forced(SDPBackend.FLASH_ATTENTION, q, k, v, causal, scale, window)


@kernel("attention", backend="pytorch", dtypes=("float16", "bfloat16"), needs=cuda(min_capability=8.0))
def sdpa_cudnn(q, k, v, *, causal, scale, window=0, kv_len=0):
    """scaled_dot_product_attention, cuDNN backend forced."""
    return _forced(SDPBackend.CUDNN_ATTENTION, q, k, v, causal, scale, window)


@kernel("attention", backend="pytorch", needs=cuda(min_capability=5.0))
def sdpa_efficient(q, k, v, *, causal, scale, window=0, kv_len=0):
    """scaled_dot_product_attention, memory-efficient backend forced."""
    return _forced(SDPBackend.EFFICIENT_ATTENTION, q, k, v, causal, scale, window)


@kernel("attention", backend="pytorch")
def sdpa_math(q, k, v, *, causal, scale, window=0, kv_len=0):
    """scaled_dot_product_attention, unfused math backend forced."""
    return _forced(SDPBackend.MATH, q, k, v, causal, scale, window)
