"""PyTorch's own silu."""

import torch.nn.functional as F

from kernels.catalog import kernel


@kernel("swish", backend="pytorch")
def functional(x):
    """torch.nn.functional.silu."""
    return F.silu(x)
