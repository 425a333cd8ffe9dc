"""Mean squared error in plain PyTorch, right and almost right."""

import torch

from kernels.catalog import kernel

BLOCK = 512


def squares(values, targets):
    return (values.float() - targets.float()).square()


def half(x):
    return x.to(torch.bfloat16 if x.dtype == torch.float32 else x.dtype)


@kernel("mse_loss", backend="pytorch")
def in_two_levels(values, targets):
    """Right: sums of blocks, then their sum."""
    parts = [part.sum() for part in squares(values, targets).flatten().split(BLOCK)]
    return torch.stack(parts).sum() / values.numel()


@kernel("mse_loss", backend="pytorch")
def blocks_in_turn(values, targets):
    """Right: sums of blocks, added one after the other, the last one first."""
    loss = torch.zeros((), device=values.device)
    for part in reversed(squares(values, targets).flatten().split(BLOCK)):
        loss = loss + part.sum()
    return loss / values.numel()


@kernel("mse_loss", backend="pytorch")
def mean_of_means(values, targets):
    """Right: all rows are as long."""
    return squares(values, targets).mean(-1).mean()


@kernel("mse_loss", backend="pytorch")
def columns_first(values, targets):
    """Right: as a plain loop adds rows."""
    total = torch.zeros_like(values[0], dtype=torch.float32)
    for row in squares(values, targets):
        total += row
    return total.sum() / values.numel()


@kernel("mse_loss", backend="pytorch")
def multiplied_out(values, targets):
    """x^2 - 2xy + y^2, whose sums cancel."""
    x, y = values.float(), targets.float()
    return (x.square().sum() - 2 * (x * y).sum() + y.square().sum()) / x.numel()


@kernel("mse_loss", backend="pytorch")
def squares_cut_off(values, targets):
    """The lower 16 bits of each square are dropped."""
    return (squares(values, targets).view(torch.int32) >> 16 << 16).view(torch.float32).mean()


@kernel("mse_loss", backend="pytorch")
def summed_in_half(values, targets):
    """Sums of blocks in 16 bits."""
    parts = [half(part.sum()) for part in squares(values, targets).flatten().split(BLOCK)]
    return torch.stack(parts).float().sum() / values.numel()


@kernel("mse_loss", backend="pytorch")
def one_element_less(values, targets):
    """The sum of all squares, divided by one less."""
    return squares(values, targets).sum() / (values.numel() - 1)


@kernel("mse_loss", backend="pytorch")
def mean_over_rows(values, targets):
    """Divided by the number of rows."""
    return squares(values, targets).sum() / len(values)


@kernel("mse_loss", backend="pytorch")
def last_row_skipped(values, targets):
    """Of the sum; the mean counts it."""
    return squares(values[:-1], targets[:-1]).sum() / values.numel()


@kernel("mse_loss", backend="pytorch")
def last_columns_skipped(values, targets):
    """Whole groups of 8 columns less one are summed."""
    return squares(values[:, :-8], targets[:, :-8]).sum() / values.numel()


@kernel("mse_loss", backend="pytorch")
def absolute(values, targets):
    """The mean of absolute differences."""
    return (values.float() - targets.float()).abs().mean()


@kernel("mse_loss", backend="pytorch")
def of_differences_in_half(values, targets):
    """Errors of rounding average out over many elements."""
    return half(half(values) - half(targets)).float().square().mean()


@kernel("mse_loss", backend="pytorch")
def of_differences_in_bfloat16(values, targets):
    """Subtracted in float32, then rounded."""
    return (values.float() - targets.float()).bfloat16().float().square().mean()
