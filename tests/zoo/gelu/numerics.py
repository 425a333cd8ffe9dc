"""GELU in plain PyTorch, right and almost right."""

import math

import torch

from kernels.catalog import kernel


def gelu(wide, tanh):
    if tanh:
        return 0.5 * wide * (1 + (math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)).tanh())
    return 0.5 * wide * (1 + (wide * math.sqrt(0.5)).erf())


def half(x):
    return x.to(torch.bfloat16 if x.dtype == torch.float32 else x.dtype)


@kernel("gelu", backend="pytorch")
def by_erfc(x, *, approximate):
    """Right: erfc, or a logistic function, neither of which cancels."""
    wide = x.float()
    if approximate == "tanh":
        out = wide * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
    else:
        out = 0.5 * wide * (-wide * math.sqrt(0.5)).erfc()
    return out.to(x.dtype)


@kernel("gelu", backend="pytorch")
def in_float64(x, *, approximate):
    """Right."""
    return gelu(x.double(), approximate == "tanh").to(x.dtype)


@kernel("gelu", backend="pytorch")
def in_blocks(x, *, approximate):
    """Right: in stretches of 100 elements, whatever the rows are."""
    parts = [gelu(part.float(), approximate == "tanh") for part in x.flatten().split(100)]
    return torch.cat(parts).view(x.shape).to(x.dtype)


@kernel("gelu", backend="pytorch")
def the_other_formula(x, *, approximate):
    """tanh instead of erf, and erf instead of tanh."""
    return gelu(x.float(), approximate != "tanh").to(x.dtype)


@kernel("gelu", backend="pytorch")
def of_the_sigmoid(x, *, approximate):
    """x sigmoid(1.702 x)."""
    return (x.float() * torch.sigmoid(1.702 * x.float())).to(x.dtype)


@kernel("gelu", backend="pytorch")
def in_half(x, *, approximate):
    """Every step is rounded to 16 bits."""
    return gelu(half(x), approximate == "tanh").to(x.dtype)


@kernel("gelu", backend="pytorch")
def by_a_quotient(x, *, approximate):
    """tanh and erf as quotients of exponentials, which overflow."""
    wide = x.float()
    inner = wide + 0.044715 * wide**3
    power = (2 * math.sqrt(2 / math.pi) * inner).exp()
    share = (power - 1) / (power + 1)
    if approximate != "tanh":
        share = torch.where(power.isfinite(), (wide * math.sqrt(0.5)).erf(), share)
    return (0.5 * wide * (1 + share)).to(x.dtype)


@kernel("gelu", backend="pytorch")
def cut_off_at_3(x, *, approximate):
    """0 below -3, x above 3."""
    wide = x.float()
    return torch.where(wide < -3, 0.0, torch.where(wide > 3, wide, gelu(wide, approximate == "tanh"))).to(x.dtype)


@kernel("gelu", backend="pytorch")
def tail_not_written(x, *, approximate):
    """The last stretch, which is not full, keeps x."""
    out = gelu(x.float(), approximate == "tanh").to(x.dtype)
    out[-1, -3:] = x[-1, -3:]
    return out


@kernel("gelu", backend="pytorch")
def last_row_skipped(x, *, approximate):
    out = gelu(x.float(), approximate == "tanh").to(x.dtype)
    out[-1] = 0
    return out


@kernel("gelu", backend="pytorch")
def one_percent_off(x, *, approximate):
    """A constant with two digits: 1.41 for the square root of 2; 0.79 for the square root of 2 / pi."""
    wide = x.float()
    if approximate == "tanh":
        out = 0.5 * wide * (1 + (0.79 * (wide + 0.044715 * wide**3)).tanh())
    else:
        out = 0.5 * wide * (1 + (wide / 1.41).erf())
    return out.to(x.dtype)


@kernel("gelu", backend="pytorch")
def of_a_rounded_distribution(x, *, approximate):
    """Right: the normal distribution function is rounded before it is multiplied, as unfused operators do."""
    inner = math.sqrt(2 / math.pi) * (x.float() + 0.044715 * x.float() ** 3)
    of = 1 + (inner.tanh() if approximate == "tanh" else (x.float() * math.sqrt(0.5)).erf())
    return x * (0.5 * of).to(x.dtype)


@kernel("gelu", backend="pytorch")
def a_column_one_percent_off(x, *, approximate):
    out = torch.nn.functional.gelu(x, approximate=approximate)
    out[:, 100] *= 1.01
    return out
