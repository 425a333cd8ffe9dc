"""Mean squared error written out in eager PyTorch."""

from kernels.catalog import kernel


@kernel("mse_loss", backend="pytorch")
def eager(values, targets):
    """Difference, square and mean, one operator after the other, in float32."""
    return (values.float() - targets.float()).square().mean()
