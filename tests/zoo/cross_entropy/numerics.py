"""Cross-entropy in plain PyTorch, right and almost right."""

import torch

from kernels.catalog import kernel

BLOCK = 128


def losses(logits, targets, of=None):
    """Of each row, in float32. of: the columns that are summed."""
    wide = logits.float()
    summed = wide[:, of] if of else wide
    return summed.logsumexp(1) - wide.gather(1, targets.unsqueeze(1)).squeeze(1)


@kernel("cross_entropy", backend="pytorch")
def online(logits, targets):
    """Right: the maximum and the sum so far, block after block."""
    wide = logits.float()
    largest = torch.full_like(wide[:, 0], -torch.inf)
    total = torch.zeros_like(largest)
    for block in wide.split(BLOCK, 1):
        new = torch.maximum(largest, block.amax(1))
        total = total * (largest - new).exp() + (block - new.unsqueeze(1)).exp().sum(1)
        largest = new
    return (largest + total.log() - wide.gather(1, targets.unsqueeze(1)).squeeze(1)).mean()


@kernel("cross_entropy", backend="pytorch")
def summed_in_turn(logits, targets):
    """Right: as a plain loop adds, along rows and then rows."""
    wide = logits.float()
    largest = wide.amax(1)
    total = torch.zeros_like(largest)
    for column in wide.unbind(1):
        total += (column - largest).exp()
    each = total.log() + largest - wide.gather(1, targets.unsqueeze(1)).squeeze(1)
    loss = torch.zeros((), device=logits.device)
    for one in each:
        loss = loss + one
    return loss / len(each)


@kernel("cross_entropy", backend="pytorch")
def last_row_first(logits, targets):
    """Right: rows in blocks, the last one first."""
    parts = [losses(x, t).sum() for x, t in zip(logits.split(7), targets.split(7), strict=True)]
    return sum(reversed(parts)) / len(logits)


@kernel("cross_entropy", backend="pytorch")
def of_the_log_softmax(logits, targets):
    """Right: the mean of entries of log_softmax in float32."""
    return -logits.float().log_softmax(1).gather(1, targets.unsqueeze(1)).mean()


@kernel("cross_entropy", backend="pytorch")
def without_maximum(logits, targets):
    wide = logits.float()
    return (wide.exp().sum(1).log() - wide.gather(1, targets.unsqueeze(1)).squeeze(1)).mean()


@kernel("cross_entropy", backend="pytorch")
def tail_not_summed(logits, targets):
    """The sum leaves out the last column."""
    return losses(logits, targets, of=slice(0, -1)).mean()


@kernel("cross_entropy", backend="pytorch")
def padding_summed(logits, targets):
    """The sum counts a column that is not there, with a value of 0."""
    padded = torch.nn.functional.pad(logits.float(), (0, 1))
    return losses(padded, targets).mean()


@kernel("cross_entropy", backend="pytorch")
def losses_in_half(logits, targets):
    """Each row's loss is rounded to 16 bits."""
    half = torch.bfloat16 if logits.dtype == torch.float32 else logits.dtype
    return losses(logits, targets).to(half).float().mean()


@kernel("cross_entropy", backend="pytorch")
def summed_in_half(logits, targets):
    """Sums along rows kept in 16 bits."""
    half = torch.bfloat16 if logits.dtype == torch.float32 else logits.dtype
    wide = logits.float()
    largest = wide.amax(1)
    total = torch.zeros_like(largest)
    for block in wide.split(16, 1):
        total = (total + (block - largest.unsqueeze(1)).exp().sum(1)).to(half).float()
    return (largest + total.log() - wide.gather(1, targets.unsqueeze(1)).squeeze(1)).mean()


@kernel("cross_entropy", backend="pytorch")
def one_row_less(logits, targets):
    """The sum of all losses, divided by one less."""
    return losses(logits, targets).sum() / (len(logits) - 1)


@kernel("cross_entropy", backend="pytorch")
def last_row_skipped(logits, targets):
    """Of the sum; the mean counts it."""
    return losses(logits[:-1], targets[:-1]).sum() / len(logits)


@kernel("cross_entropy", backend="pytorch")
def class_0_ignored(logits, targets):
    """Rows of class 0 are left out, as if it were padding."""
    each = losses(logits, targets)
    counted = targets != 0
    return torch.where(counted, each, 0).sum() / counted.sum().clamp_min(1)


@kernel("cross_entropy", backend="pytorch")
def class_2_ignored(logits, targets):
    """The same of another class that many vocabularies use for padding."""
    each = losses(logits, targets)
    counted = targets != 2
    return torch.where(counted, each, 0).sum() / counted.sum().clamp_min(1)


@kernel("cross_entropy", backend="pytorch")
def rescaling_skipped(logits, targets):
    """Online; the sum so far is not rescaled where the maximum grows."""
    wide = logits.float()
    largest, total = wide[:, :BLOCK].amax(1), 0.0
    for block in wide.split(BLOCK, 1):
        new = torch.maximum(largest, block.amax(1))
        total = total + (block - new.unsqueeze(1)).exp().sum(1)
        largest = new
    return (largest + total.log() - wide.gather(1, targets.unsqueeze(1)).squeeze(1)).mean()


@kernel("cross_entropy", backend="pytorch", dtypes=("float16", "float32"))
def of_bfloat16_logits(logits, targets):
    """Errors of rounding average out over many rows."""
    return losses(logits.bfloat16(), targets).mean()


@kernel("cross_entropy", backend="pytorch", dtypes=("float16", "float32"))
def sums_of_bfloat16_logits(logits, targets):
    """The logit of the right class is not rounded."""
    right = logits.float().gather(1, targets.unsqueeze(1)).squeeze(1)
    return (logits.bfloat16().float().logsumexp(1) - right).mean()
