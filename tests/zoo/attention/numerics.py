"""Flash attention in plain PyTorch, right and almost right: tiles of keys, scores and sums in float32, base 2."""

import math

import torch

from kernels.catalog import kernel

TILE, LOG2_E = 64, 1 / math.log(2)
MMA = 16
"""Products that a tensor core adds before it rounds the sum to its accumulator."""
SMALL_GROWTH = 0.02


def flash(q, k, v, causal, scale, scores=None, skipped=0.0, keys=None):
    """scores: of q and a tile of keys, instead of float32 ones. skipped: growth of the maximum (of a score) up to which
    sums are not rescaled. keys: keys that are seen at all."""
    dtype, length, group = q.dtype, q.shape[2], q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1)[:, :, :keys] for t in (k, v))
    largest = q.new_full((*q.shape[:3], 1), -math.inf, dtype=torch.float32)
    total, sums = torch.zeros_like(largest), torch.zeros_like(q, dtype=torch.float32)
    for first in range(0, k.shape[2], TILE):
        tile, values = k[:, :, first : first + TILE], v[:, :, first : first + TILE]
        seen = (scores or in_float32)(q, tile) * (scale * LOG2_E)
        if causal:
            column = torch.arange(first, first + tile.shape[2], device=q.device)
            seen = seen.masked_fill(column > torch.arange(length, device=q.device)[:, None], -math.inf)
        before, largest = largest, torch.maximum(largest, seen.amax(-1, keepdim=True))
        part, shrunk = torch.exp2(seen - largest), torch.exp2(before - largest)
        shrunk = torch.where((largest - before) / LOG2_E < skipped, 1.0, shrunk)
        total = total * shrunk + part.sum(-1, keepdim=True)
        sums = sums * shrunk + part.to(dtype).float() @ values.float()
    return (sums / total).to(dtype)


def in_float32(q, k):
    return q.float() @ k.float().mT


def in_half(q, k):
    """Added in float16, as mma.m16n8k16.f16 does."""
    sums = torch.zeros(*q.shape[:3], k.shape[2], dtype=torch.float16, device=q.device)
    for first in range(0, q.shape[-1], MMA):
        part = slice(first, first + MMA)
        sums = (sums.float() + q[..., part].float() @ k[..., part].float().mT).half()
    return sums.float()


def folded(q, factor):
    return (q.float() * factor).to(q.dtype)


# --- right ------------------------------------------------------------------------------------------------------------


@kernel("attention", backend="pytorch")
def plain_flash(q, k, v, *, causal, scale):
    """All in float32 but the weights and the result."""
    return flash(q, k, v, causal, scale)


@kernel("attention", backend="pytorch")
def folded_scale(q, k, v, *, causal, scale):
    """The scale is multiplied into q, which is rounded."""
    return flash(folded(q, scale), k, v, causal, 1.0)


@kernel("attention", backend="pytorch")
def folded_scale_in_base_2(q, k, v, *, causal, scale):
    """The scale and log2(e) are multiplied into q, which is rounded."""
    return flash(folded(q, scale * LOG2_E), k, v, causal, 1 / LOG2_E)


@kernel("attention", backend="pytorch")
def folded_into_both(q, k, v, *, causal, scale):
    """The root of the scale is multiplied into q and into k; both are rounded, and so are the scores."""
    q, k = folded(q, scale**0.5), folded(k, scale**0.5)
    return flash(q, k, v, causal, 1.0, scores=lambda q, k: in_float32(q, k).to(q.dtype).float())


# --- wrong ------------------------------------------------------------------------------------------------------------


@kernel("attention", backend="pytorch")
def scale_off_by_a_thousandth(q, k, v, *, causal, scale):
    return flash(q, k, v, causal, 1.001 * scale)


@kernel("attention", backend="pytorch")
def scale_off_by_three_thousandths(q, k, v, *, causal, scale):
    return flash(q, k, v, causal, 0.997 * scale)


@kernel("attention", backend="pytorch")
def scale_of_few_bits(q, k, v, *, causal, scale):
    """The scale itself is rounded to the dtype: 0.3% in bfloat16."""
    rounded = torch.tensor(scale * LOG2_E, dtype=q.dtype).item()
    return flash(q, k, v, causal, rounded / LOG2_E)


@kernel("attention", backend="pytorch")
def last_key_dropped(q, k, v, *, causal, scale):
    return flash(q, k, v, causal, scale, keys=-1)


@kernel("attention", backend="pytorch", dtypes=("float16",))
def scores_in_half(q, k, v, *, causal, scale):
    """QK^T is added in float16."""
    return flash(q, k, v, causal, scale, scores=in_half)


@kernel("attention", backend="pytorch")
def rescaling_skipped(q, k, v, *, causal, scale):
    """Sums are not rescaled where the maximum grew by less than 2%, and later weights are relative to the new one."""
    return flash(q, k, v, causal, scale, skipped=SMALL_GROWTH)
