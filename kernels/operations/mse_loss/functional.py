"""PyTorch's own mse_loss, of tensors converted to float32: its loss has the dtype of its inputs."""

import torch.nn.functional as F

from kernels.catalog import kernel


@kernel("mse_loss", backend="pytorch")
def functional(values, targets):
    """torch.nn.functional.mse_loss(values.float(), targets.float())."""
    return F.mse_loss(values.float(), targets.float())
