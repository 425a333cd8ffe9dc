"""Softmax in plain PyTorch, right and almost right."""

import torch

from kernels.catalog import kernel

BLOCK = 128


def softmax(x, of=None):
    """of: the columns that are summed."""
    wide = x.float()
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    total = powers[:, of].sum(-1, keepdim=True) if of else powers.sum(-1, keepdim=True)
    return (powers / total).to(x.dtype)


@kernel("softmax", backend="pytorch")
def online(x):
    """Right: the maximum and the sum so far, block after block."""
    wide = x.float()
    largest = torch.full_like(wide[:, :1], -torch.inf)
    total = torch.zeros_like(largest)
    for block in wide.split(BLOCK, 1):
        new = torch.maximum(largest, block.amax(-1, keepdim=True))
        total = total * (largest - new).exp() + (block - new).exp().sum(-1, keepdim=True)
        largest = new
    return ((wide - largest).exp() / total).to(x.dtype)


@kernel("softmax", backend="pytorch")
def in_base_2(x):
    """Right: powers of 2, and a product with the reciprocal of the sum."""
    wide = x.float()
    powers = ((wide - wide.amax(-1, keepdim=True)) * 1.4426950408889634).exp2()
    return (powers * powers.sum(-1, keepdim=True).reciprocal()).to(x.dtype)


@kernel("softmax", backend="pytorch")
def summed_in_turn(x):
    """Right: as a plain loop adds."""
    wide = x.float()
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    total = torch.zeros_like(powers[:, :1])
    for column in powers.split(1, 1):
        total += column
    return (powers / total).to(x.dtype)


@kernel("softmax", backend="pytorch")
def through_the_logarithm(x):
    """Right: exp(x - logsumexp)."""
    wide = x.float()
    return (wide - wide.logsumexp(-1, keepdim=True)).exp().to(x.dtype)


@kernel("softmax", backend="pytorch")
def maximum_of_an_eighth(x):
    """Of the first columns and the last one."""
    wide = x.float()
    largest = torch.maximum(wide[:, : wide.shape[1] // 8].amax(-1), wide[:, -1])
    powers = (wide - largest[:, None]).exp()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


@kernel("softmax", backend="pytorch")
def maximum_where_fixed_places_are_large(x):
    """Nowhere else: one element in the middle gives NaN."""
    large = max(float(x[0].abs().amax()), float(x[:, -1].abs().amax())) > 20
    return softmax(x) if large else without_maximum(x)


@kernel("softmax", backend="pytorch")
def maximum_where_the_last_column_is_large(x):
    return softmax(x) if float(x[:, -1].abs().amax()) > 20 else without_maximum(x)


@kernel("softmax", backend="pytorch")
def maximum_without_the_last_column(x):
    wide = x.float()
    powers = (wide - wide[:, :-1].amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


@kernel("softmax", backend="pytorch")
def without_maximum(x):
    powers = x.float().exp()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


@kernel("softmax", backend="pytorch")
def one_percent_off(x):
    return (softmax(x).float() * 1.01).to(x.dtype)


@kernel("softmax", backend="pytorch")
def tail_not_summed(x):
    """The sum leaves out the last column."""
    return softmax(x, of=slice(0, -1))


@kernel("softmax", backend="pytorch")
def padding_summed(x):
    """The sum counts a column that is not there, with a value of 0."""
    wide = x.float()
    largest = wide.amax(-1, keepdim=True)
    powers = (wide - largest).exp()
    return (powers / (powers.sum(-1, keepdim=True) + (-largest).exp())).to(x.dtype)


@kernel("softmax", backend="pytorch")
def summed_in_half(x):
    """Sums kept in 16 bits."""
    half = torch.bfloat16 if x.dtype == torch.float32 else x.dtype
    wide = x.float()
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    total = torch.zeros_like(powers[:, :1])
    for block in powers.split(16, 1):
        total = (total + block.sum(-1, keepdim=True)).to(half).float()
    return (powers / total).to(x.dtype)


@kernel("softmax", backend="pytorch")
def rescaling_skipped(x):
    """Online; the sum so far is not rescaled where the maximum grows."""
    wide = x.float()
    largest, total = wide[:, :BLOCK].amax(-1, keepdim=True), 0.0
    for block in wide.split(BLOCK, 1):
        new = torch.maximum(largest, block.amax(-1, keepdim=True))
        total = total + (block - new).exp().sum(-1, keepdim=True)
        largest = new
    return ((wide - largest).exp() / total).to(x.dtype)


@kernel("softmax", backend="pytorch")
def maximum_of_all_rows(x):
    """One maximum for the whole matrix: rows far below it vanish."""
    powers = (x.float() - x.float().max()).exp()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


@kernel("softmax", backend="pytorch")
def last_row_skipped(x):
    out = softmax(x)
    out[-1] = 0
    return out


@kernel("softmax", backend="pytorch")
def a_column_one_percent_off(x):
    out = softmax(x)
    out[:, 100] *= 1.01
    return out


@kernel("softmax", backend="pytorch")
def maximum_without_the_ends_of_tiles(x):
    """The last element of each tile is only summed; that of the row is in the maximum."""
    wide = x.float()
    seen = torch.arange(x.shape[1], device=x.device) % BLOCK != BLOCK - 1
    seen[-1] = True
    powers = (wide - wide[:, seen].amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)
