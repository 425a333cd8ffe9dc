"""Random numbers of other people's code: they follow from a seed of ours."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from unittest import mock

import numpy
import torch

SEEDERS = (
    (torch, "manual_seed"), (torch.random, "manual_seed"), (torch.cuda, "manual_seed"),
    (torch.cuda, "manual_seed_all"), (random, "seed"), (numpy.random, "seed"),
)  # fmt: skip
NUMPYS_SEEDS = 2**32


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """While it is on, the generators of PyTorch, NumPy and Python draw what follows from a seed. Code that seeds them itself does
    not: `torch.manual_seed(42)` in get_inputs would give the same inputs to every call, and a kernel could keep its answer."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % NUMPYS_SEEDS)
    with contextlib.ExitStack() as stack:
        for module, name in SEEDERS:
            stack.enter_context(mock.patch.object(module, name, _not_again))
        stack.enter_context(mock.patch.object(torch, "seed", torch.initial_seed))
        yield


def _not_again(*_: object, **__: object) -> torch.Generator:
    return torch.default_generator
