"""FlashAttention 4, of the package flash-attn-4: the CuTe DSL, for Hopper and Blackwell.

Its tensors are (B, S, H, D). It takes and gives views of ours, without a copy.
"""

from kernels.catalog import cuda, kernel


@kernel(
    "attention",
    backend="cutedsl",
    dtypes=("float16", "bfloat16"),
    needs=cuda(min_capability=9.0, packages=("flash_attn.cute",)),
)
def flash_attn_4(q, k, v, *, causal, scale, window=0):
    """flash-attn-4: flash_attn.cute.flash_attn_func, in the CuTe DSL."""
    from flash_attn.cute import flash_attn_func

    near = window - 1 if window else None
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    sides = (near, 0 if window and causal else near)
    found = flash_attn_func(q, k, v, softmax_scale=scale, causal=causal, window_size=sides)
    out = found[0] if isinstance(found, tuple) else found  # with the logarithms of the sums, if it gives them
    return out.transpose(1, 2)
