"""Swish in plain PyTorch, right and almost right."""

import torch

from kernels.catalog import kernel


def swish(x):
    return (x.float() * x.float().sigmoid()).to(x.dtype)


def half(x):
    return x.to(torch.bfloat16 if x.dtype == torch.float32 else x.dtype)


@kernel("swish", backend="pytorch")
def by_tanh(x):
    """Right: (1 + tanh(x / 2)) / 2 is the logistic function."""
    wide = x.double()
    return (0.5 * wide * (1 + (0.5 * wide).tanh())).to(x.dtype)


@kernel("swish", backend="pytorch")
def in_base_2(x):
    """Right: a power of 2, and a product with a reciprocal."""
    wide = x.float()
    return (wide * (1 + (wide * -1.4426950408889634).exp2()).reciprocal()).to(x.dtype)


@kernel("swish", backend="pytorch", dtypes=("float16", "bfloat16"))
def rounded_twice(x):
    """Right: the logistic function is rounded, then the product."""
    return x * x.sigmoid()


@kernel("swish", backend="pytorch")
def in_blocks(x):
    """Right: in stretches of 100 elements, whatever the rows are."""
    return torch.cat([swish(part) for part in x.flatten().split(100)]).view(x.shape)


@kernel("swish", backend="pytorch")
def hard_swish(x):
    return torch.nn.functional.hardswish(x.float()).to(x.dtype)


@kernel("swish", backend="pytorch")
def of_gelu(x):
    """x sigmoid(1.702 x)."""
    return (x.float() * torch.sigmoid(1.702 * x.float())).to(x.dtype)


@kernel("swish", backend="pytorch")
def without_the_product(x):
    return x.float().sigmoid().to(x.dtype)


@kernel("swish", backend="pytorch")
def by_a_quotient(x):
    """exp(x) / (1 + exp(x)), which overflows."""
    power = x.float().exp()
    return (x.float() * power / (1 + power)).to(x.dtype)


@kernel("swish", backend="pytorch")
def in_half_by_tanh(x):
    """(1 + tanh(x / 2)) / 2 in 16 bits, where it cancels."""
    narrow = half(x)
    return (0.5 * narrow * (1 + (0.5 * narrow).tanh())).to(x.dtype)


@kernel("swish", backend="pytorch")
def cut_off_at_minus_4(x):
    wide = x.float()
    return torch.where(wide < -4, 0.0, swish(wide)).to(x.dtype)


@kernel("swish", backend="pytorch")
def tail_not_written(x):
    """The last stretch, which is not full, keeps x."""
    out = swish(x)
    out[-1, -3:] = x[-1, -3:]
    return out


@kernel("swish", backend="pytorch")
def last_row_skipped(x):
    out = swish(x)
    out[-1] = 0
    return out


@kernel("swish", backend="pytorch")
def base_2_without_its_factor(x):
    """Powers of 2 with 1.44 for log2(e)."""
    wide = x.float()
    return (wide / (1 + (wide * -1.44).exp2())).to(x.dtype)
