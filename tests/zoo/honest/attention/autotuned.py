"""Honest: Triton tries some tile sizes when it is first called; then PyTorch multiplies."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from kernels.catalog import cuda, kernel

MUST_BE = {"cuda": ("ok",)}


@triton.autotune([triton.Config({"N": n}, num_warps=w) for n in (256, 1024) for w in (2, 4)], key=["count"])
@triton.jit
def copied(x, out, count, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + at, tl.load(x + at, mask=at < count), mask=at < count)


@kernel("attention", backend="triton", needs=cuda())
def autotuned(q, k, v, *, causal, scale):
    mine, count = torch.empty_like(q), q.numel()
    copied[lambda meta: (triton.cdiv(count, meta["N"]),)](q.contiguous(), mine, count)
    return F.scaled_dot_product_attention(mine, k, v, is_causal=causal, scale=scale)
