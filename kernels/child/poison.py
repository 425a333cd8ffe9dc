"""Poison: what memory holds before a checked call, so that what the call does not write can be seen and counted.

On a GPU it is a NaN with bits that no arithmetic leaves, put where the allocator looks next. On a CPU no place can be
foreseen, small allocations split it; so the C library itself is asked to fill what it hands out, with one repeated byte.
That byte cannot be 0xFF, so float32 poison is no NaN there but 8.4e37, as wrong and as easy to see. What is smaller than
1 KiB may come from the C library's own cache and hold old values.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kernels.operations.base import Like

NAN = {2: 0x7FDA, 4: 0x7FC0BEEF, 8: 0x7FF80000DEADBEEF}
"""By bytes of an element."""
FILL_BYTE = 0x7E
REPEATED = {size: int.from_bytes([FILL_BYTE] * size, "big") for size in NAN}
M_PERTURB = -6
"""Of mallopt(3): memory handed out is filled with the complement of the low byte, and nothing is where it is 0."""
BUFFERS = ((2**16, 16), (2**28, 4))
"""Up to so many bytes of output, so many buffers of its size hold poison; one beyond. Small memory has many free places."""


def bits(tensor: Any) -> Any:
    """The same memory as integers, so that NaN equals itself."""
    return tensor.view(getattr(torch, f"int{8 * tensor.element_size()}")) if tensor.is_floating_point() else tensor


def _pattern(tensor: Any) -> int | None:
    """What poison looks like in this tensor; None in what is no tensor of floats."""
    if type(tensor) is not torch.Tensor or not tensor.is_floating_point():
        return None
    return (REPEATED if tensor.device.type == "cpu" else NAN).get(tensor.element_size())


@torch.inference_mode()
def fill(tensor: Any) -> None:
    if (pattern := _pattern(tensor)) is not None:
        bits(tensor).fill_(pattern)


def count(tensor: Any) -> int:
    """How many elements are poison; 0 of what is no tensor of floats."""
    pattern = _pattern(tensor)
    return 0 if pattern is None else int((bits(tensor) == pattern).sum())


@contextmanager
def in_new_memory(likes: Sequence[Like], device: str) -> Iterator[None]:
    """What is allocated inside holds poison: on a CPU with the GNU C library everything, elsewhere outputs like these.

    likes: (shape, dtype) of each, in the order in which they will most likely be allocated.
    """
    if device == "cpu" and _fill_what_malloc_gives(FILL_BYTE ^ 0xFF):
        try:
            yield
        finally:
            _fill_what_malloc_gives(0)
        return
    _leave(likes, device)
    yield


def _fill_what_malloc_gives(value: int) -> bool:
    """Whether this C library does it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(M_PERTURB, value))


def _leave(likes: Sequence[Like], device: str) -> None:
    """Leaves poison in the memory that the allocator will hand out next."""
    size = max(math.prod(shape) * dtype.itemsize for shape, dtype in likes)
    most = next((number for limit, number in BUFFERS if size <= limit), 1)
    for number in range(most, 0, -1):  # ends with the very places of the next tensors
        buffers = [torch.empty(shape, dtype=dtype, device=device) for _ in range(number) for shape, dtype in likes]
        for buffer in buffers:
            fill(buffer)
        del buffer
        buffers.clear()
