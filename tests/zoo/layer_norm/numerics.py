"""LayerNorm in plain PyTorch, right and almost right."""

import torch

from kernels.catalog import kernel


def normalised(x, weight, bias, eps, of=None, unbiased=False):
    """of: the columns of which mean and variance are taken."""
    wide = x.float()
    of = wide if of is None else of
    variance = of.var(-1, keepdim=True, unbiased=unbiased)
    return ((wide - of.mean(-1, keepdim=True)) * torch.rsqrt(variance + eps) * weight.float() + bias.float()).to(
        x.dtype
    )


@kernel("layer_norm", backend="pytorch")
def written_out(x, weight, bias, *, eps):
    """Right: the definition."""
    return normalised(x, weight, bias, eps)


@kernel("layer_norm", backend="pytorch", dtypes=("float16", "bfloat16"))
def rounded_twice(x, weight, bias, *, eps):
    """Right: rounds before the weight is multiplied, and after."""
    one, none = torch.ones_like(weight), torch.zeros_like(bias)
    return (normalised(x, one, none, eps).float() * weight.float() + bias.float()).to(x.dtype)


@kernel("layer_norm", backend="pytorch", dtypes=("float16", "bfloat16"))
def in_one_pass(x, weight, bias, *, eps):
    """Right in 16 bits: the variance is the mean of squares less the square of the mean."""
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    variance = (wide.square().mean(-1, keepdim=True) - mean.square()).clamp_min(0)
    return ((wide - mean) * torch.rsqrt(variance + eps) * weight.float() + bias.float()).to(x.dtype)


@kernel("layer_norm", backend="pytorch")
def without_eps(x, weight, bias, *, eps):
    return normalised(x, weight, bias, 0.0)


@kernel("layer_norm", backend="pytorch")
def eps_a_tenth(x, weight, bias, *, eps):
    return normalised(x, weight, bias, eps / 10)


@kernel("layer_norm", backend="pytorch")
def unbiased_variance(x, weight, bias, *, eps):
    return normalised(x, weight, bias, eps, unbiased=True)


@kernel("layer_norm", backend="pytorch")
def last_column_left_out(x, weight, bias, *, eps):
    """Of mean and variance only."""
    return normalised(x, weight, bias, eps, of=x.float()[:, :-1])


@kernel("layer_norm", backend="pytorch")
def a_column_one_percent_off(x, weight, bias, *, eps):
    out = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
    out[:, 100] *= 1.01
    return out
