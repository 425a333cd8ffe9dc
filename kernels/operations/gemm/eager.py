"""PyTorch's own matrix product: cuBLAS on a GPU."""

from kernels.catalog import kernel


@kernel("gemm", backend="pytorch")
def eager(a, b, *, trans_a=False, trans_b=False):
    """a @ b, the kernel chosen by PyTorch; of what is stored transposed a view."""
    return (a.mT if trans_a else a) @ (b.mT if trans_b else b)
