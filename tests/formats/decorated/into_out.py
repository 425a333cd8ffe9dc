import torch

from kernels.catalog import kernel


@kernel("mse_loss", backend="pytorch")
def mean_of_squares(values, targets):
    """Mean of the squares."""
    return torch.mean((values.float() - targets.float()) ** 2)
