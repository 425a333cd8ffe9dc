"""float32 products of numbers split into parts of few bits."""

import torch

from kernels.catalog import kernel


def to_bf16(x):
    return x.bfloat16().float()


def to_tf32(x):
    """Rounded to 10 bits of significand."""
    return ((x.view(torch.int32) + 0x1000) >> 13 << 13).view(torch.float32)


def of_three_products(a, b, rounded):
    """High times high, and the two mixed products; low times low is left out."""
    (a_high, a_low), (b_high, b_low) = ((high := rounded(x), rounded(x - high)) for x in (a, b))
    return a_low @ b_high + a_high @ b_low + a_high @ b_high


@kernel("gemm", backend="pytorch", dtypes=("float32",))
def tf32x3(a, b):
    """Right: almost as good as float32."""
    return of_three_products(a, b, to_tf32)


@kernel("gemm", backend="pytorch", dtypes=("float32",))
def bf16x3(a, b):
    """Wrong: 16 bits of significand, not 24."""
    return of_three_products(a, b, to_bf16)


@kernel("gemm", backend="pytorch")
def a_column_one_percent_off(a, b, **sizes):
    out = a @ b
    out[..., 40] *= 1.01
    return out
