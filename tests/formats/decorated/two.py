import torch

from kernels.catalog import kernel


@kernel("gemm", backend="pytorch", dtypes=("float32",))
def by_einsum(a, b):
    """einsum."""
    return torch.einsum("mk,kn->mn", a, b)


@kernel("gemm", backend="pytorch", dtypes=("float32",))
def by_linear(a, b):
    """A linear layer."""
    return torch.nn.functional.linear(a, b.T)
