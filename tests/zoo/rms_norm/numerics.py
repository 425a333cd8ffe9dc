"""RMSNorm in plain PyTorch, right and almost right."""

import torch

from kernels.catalog import kernel

BLOCK = 256


def normalised(x, weight, eps, of=None):
    """of: the mean of squares, if it is not the right one."""
    wide = x.float()
    mean = wide.square().mean(-1, keepdim=True) if of is None else of
    return (wide * torch.rsqrt(mean + eps) * weight.float()).to(x.dtype)


@kernel("rms_norm", backend="pytorch")
def in_two_levels(x, weight, *, eps):
    """Right: sums of blocks, then their sum."""
    of_blocks = [block.float().square().sum(-1, keepdim=True) for block in x.split(BLOCK, 1)]
    return normalised(x, weight, eps, of=torch.cat(of_blocks, 1).sum(-1, keepdim=True) / x.shape[1])


@kernel("rms_norm", backend="pytorch")
def summed_in_turn(x, weight, *, eps):
    """Right: as a plain loop adds."""
    total = torch.zeros_like(x[:, :1], dtype=torch.float32)
    for column in x.float().split(1, 1):
        total += column * column
    return normalised(x, weight, eps, of=total / x.shape[1])


@kernel("rms_norm", backend="pytorch", dtypes=("float16", "bfloat16"))
def rounded_twice(x, weight, *, eps):
    """Right: rounds before the weight is multiplied, and after."""
    return (normalised(x, torch.ones_like(weight), eps).float() * weight.float()).to(x.dtype)


@kernel("rms_norm", backend="pytorch")
def divided(x, weight, *, eps):
    """Right: divides by the root."""
    wide = x.float()
    return (wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * weight.float()).to(x.dtype)


@kernel("rms_norm", backend="pytorch")
def without_eps(x, weight, *, eps):
    return normalised(x, weight, 0.0)


@kernel("rms_norm", backend="pytorch")
def eps_of_layer_norm(x, weight, *, eps):
    """1e-5."""
    return normalised(x, weight, 1e-5)


@kernel("rms_norm", backend="pytorch")
def eps_outside_the_root(x, weight, *, eps):
    wide = x.float()
    return (wide / (wide.square().mean(-1, keepdim=True).sqrt() + eps) * weight.float()).to(x.dtype)


@kernel("rms_norm", backend="pytorch")
def mean_subtracted(x, weight, *, eps):
    """LayerNorm without a bias."""
    return normalised(x.float() - x.float().mean(-1, keepdim=True), weight, eps).to(x.dtype)


@kernel("rms_norm", backend="pytorch")
def one_column_less(x, weight, *, eps):
    """The sum of all squares, divided by one less."""
    return normalised(x, weight, eps, of=x.float().square().sum(-1, keepdim=True) / (x.shape[1] - 1))


@kernel("rms_norm", backend="pytorch")
def last_column_left_out(x, weight, *, eps):
    """Of the mean only."""
    return normalised(x, weight, eps, of=x.float()[:, :-1].square().mean(-1, keepdim=True))


@kernel("rms_norm", backend="pytorch")
def summed_in_half(x, weight, *, eps):
    """Squares and their sum in 16 bits."""
    half = x.to(torch.bfloat16 if x.dtype == torch.float32 else x.dtype)
    total = torch.zeros_like(half[:, :1])
    for block in half.split(BLOCK, 1):
        total = total + (block * block).sum(-1, keepdim=True)
    return normalised(x, weight, eps, of=total.float() / x.shape[1])


@kernel("rms_norm", backend="pytorch")
def last_row_skipped(x, weight, *, eps):
    out = normalised(x, weight, eps)
    out[-1] = 0
    return out


@kernel("rms_norm", backend="pytorch")
def mean_of_a_quarter(x, weight, *, eps):
    """Of long rows it is almost the mean of all."""
    return normalised(x, weight, eps, of=x[:, ::4].float().square().mean(-1, keepdim=True))


@kernel("rms_norm", backend="pytorch")
def a_column_one_percent_off(x, weight, *, eps):
    out = normalised(x, weight, eps)
    out[:, 100] *= 1.01
    return out
