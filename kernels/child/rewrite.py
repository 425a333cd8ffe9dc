"""New values for input tensors, in place."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from kernels.operations.base import Inputs


def rewrite(inputs: Inputs, values: Inputs) -> None:
    """Writes values into the memory of inputs. Version counters stay as they were: kernels of other libraries do not
    count their writes either, so whoever trusts a counter is wrong."""
    with torch.no_grad(), counters_kept(inputs.tensors):  # an input may have been made to require gradients
        for old, new in zip(inputs.tensors, values.tensors, strict=True):
            old.copy_(new)


def counters_kept(tensors: Sequence[torch.Tensor]) -> AbstractContextManager[Any]:
    """Keeps the version counters of tensors that are written inside."""
    if any(tensor.is_inference() for tensor in tensors):
        return nullcontext()
    return torch.autograd._unsafe_preserve_version_counter(tuple(tensors))
