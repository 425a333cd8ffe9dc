"""xFormers' memory-efficient attention: it chooses among its own kernels and FlashAttention's.

Its tensors are (B, S, H, D), or (B, S, Hkv, group, D). It takes and gives views of ours, without a copy.
"""

from kernels.catalog import Unsupported, cuda, kernel


@kernel("attention", backend="cuda", needs=cuda(min_capability=8.0, packages=("xformers.ops",)))
def xformers(q, k, v, *, causal, scale, window=0):
    """xformers: ops.memory_efficient_attention, kernel chosen by xFormers."""
    from xformers import ops

    group = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if group > 1:
        q = q.unflatten(2, (k.shape[2], group))
        k, v = (x[:, :, :, None].expand(-1, -1, -1, group, -1) for x in (k, v))
    try:
        out = ops.memory_efficient_attention(q, k, v, attn_bias=_mask(ops.fmha.attn_bias, causal, window), scale=scale)
    except NotImplementedError as error:
        raise Unsupported(f"xFormers has no kernel for this workload: {str(error).splitlines()[0]}") from None
    return (out.flatten(2, 3) if group > 1 else out).transpose(1, 2)


def _mask(masks, causal, window):
    """xFormers' own mask, which its kernels know; None if every query sees every key."""
    if not window:
        return masks.LowerTriangularMask() if causal else None
    if causal:
        return masks.LowerTriangularFromBottomRightLocalAttentionMask(window)
    return masks.LocalAttentionFromBottomRightMask(window_left=window - 1, window_right=window - 1)
