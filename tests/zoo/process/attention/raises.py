"""Fails with a message that no database likes: it has a NUL in it."""

from kernels.catalog import kernel

MUST_BE = {"cpu": ("failed", "is not a power of two")}


@kernel("attention", backend="pytorch")
def raises(q, k, v, *, causal, scale):
    raise ValueError(f"block size {q.shape[-1] - 1} is not a power of two\x00")
