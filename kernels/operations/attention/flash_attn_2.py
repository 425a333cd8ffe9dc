"""FlashAttention 2, of the package flash-attn: CUDA C++, compiled for compute capability 8.0 and later.

Its tensors are (B, S, H, D). It takes and gives views of ours, without a copy.
"""

from kernels.catalog import cuda, kernel


@kernel(
    "attention",
    backend="cuda",
    dtypes=("float16", "bfloat16"),
    needs=cuda(min_capability=8.0, packages=("flash_attn.flash_attn_interface",)),
)
def flash_attn_2(q, k, v, *, causal, scale, window=0):
    """flash-attn: flash_attn.flash_attn_func."""
    from flash_attn import flash_attn_func

    near = window - 1 if window else -1
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = flash_attn_func(q, k, v, softmax_scale=scale, causal=causal, window_size=(near, 0 if causal else near))
    return out.transpose(1, 2)
