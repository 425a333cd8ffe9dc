"""PyTorch's own gelu."""

import torch.nn.functional as F

from kernels.catalog import kernel


@kernel("gelu", backend="pytorch")
def functional(x, *, approximate):
    """torch.nn.functional.gelu."""
    return F.gelu(x, approximate=approximate)
