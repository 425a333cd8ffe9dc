"""PyTorch's own matrix product: cuBLAS on a GPU."""

from functools import cache

import torch

from kernels.catalog import kernel


@kernel("gemm", backend="pytorch", dtypes=("float16", "bfloat16", "float32", "tf32", "float8_e4m3fn"))
def eager(a, b, *, trans_a=False, trans_b=False, tf32=False):
    """a @ b, the kernel chosen by PyTorch; of what is stored transposed a view. fp8: torch._scaled_mm with scales of 1."""
    a, b = a.mT if trans_a else a, b.mT if trans_b else b
    if a.dtype == torch.float8_e4m3fn:
        return torch._scaled_mm(a, b, _one(a.device), _one(a.device), out_dtype=torch.bfloat16)
    return _in_tf32(a, b) if tf32 else a @ b


def _in_tf32(a, b):
    matmul = torch.backends.cuda.matmul
    before, matmul.fp32_precision = matmul.fp32_precision, "tf32"
    try:
        return a @ b
    finally:
        matmul.fp32_precision = before


@cache
def _one(device):
    return torch.ones((), device=device)
