"""Honest: imports what it needs, and much more, in its first call."""

from kernels.catalog import kernel

MUST_BE = {"cpu": ("ok",), "cuda": ("ok",)}


@kernel("attention", backend="pytorch")
def imports_late(q, k, v, *, causal, scale):
    import asyncio  # noqa: F401
    import multiprocessing.pool  # noqa: F401
    import unittest.mock  # noqa: F401

    import torch.distributions
    import torch.fx  # noqa: F401
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
