"""Poison: fills memory before a checked call, so that unwritten elements show and can be counted.

On a GPU it is a NaN with bits that no arithmetic produces, placed where the allocator looks next. On a CPU the place is
unpredictable, because small allocations split it: there the C library fills all new memory with one repeated byte. That
byte cannot be 0xFF, so float32 poison is 8.4e37 there, not NaN: as wrong and as easy to see. Below 1 KiB the C library has a
cache, which it does not fill: there poison is also left where it looks next. Rarely it gives back something else.

Integers and truth values get the repeated byte everywhere. Integers of one or two bytes may hold it by chance, so it is
not counted there: what was not written shows when values are compared.
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
"""Bytes of an element -> NaN bits."""
FILL_BYTE = 0x7E
REPEATED = {size: int.from_bytes([FILL_BYTE] * size, "big") for size in (1, *NAN)}
LEAST_COUNTED = 4
"""Bytes of the shortest integer in which poison is counted."""
M_PERTURB = -6
"""Option of mallopt(3): fills new memory with the complement of the low byte; 0: does not fill."""
CACHED_BYTES = 1032
"""The largest memory that the GNU C library caches."""
ALIGNMENT, LEAST_CHUNK, HEADER = 64, 32, 8
"""Of PyTorch's memory on a CPU; of the C library's smallest chunk, and of what it keeps beside each."""
FREE_CHUNKS = 128
"""Free chunks of one size that are filled."""
BUFFERS = ((2**16, 16), (2**28, 4))
"""(output bytes at most, buffers of this size that hold poison); larger outputs: one. Small memory has many free
places."""


def bits(tensor: Any) -> Any:
    """The same memory as integers, so that NaN equals itself."""
    if not (tensor.is_floating_point() or tensor.dtype == torch.bool):
        return tensor
    return tensor.view(getattr(torch, f"int{8 * tensor.element_size()}"))


def same(some: Any, others: Any) -> bool:
    """Whether two tensors hold the same values; NaN is the same as the same NaN. Raises if one is no tensor."""
    if torch.equal(some, others):
        return True
    if some.shape != others.shape or some.dtype != others.dtype:
        return False
    if some.is_complex():
        some, others = torch.view_as_real(some.resolve_conj()), torch.view_as_real(others.resolve_conj())
    return bool(torch.equal(bits(some), bits(others)))


def _pattern(tensor: Any) -> int | None:
    """Poison's bits in this tensor; None if it is no tensor of real numbers or truth values."""
    if type(tensor) is not torch.Tensor or tensor.is_complex():
        return None
    on_gpu = tensor.is_floating_point() and tensor.device.type != "cpu"
    return (NAN if on_gpu else REPEATED).get(tensor.element_size())


@torch.inference_mode()
def fill(tensor: Any) -> None:
    if (pattern := _pattern(tensor)) is not None:
        bits(tensor).fill_(pattern)


def count(tensor: Any) -> int:
    """Number of poisoned elements; 0 if they are not counted."""
    return int((bits(tensor) == _pattern(tensor)).sum()) if is_counted(tensor) else 0


def is_counted(tensor: Any) -> bool:
    """Whether poison can be told from results in this tensor."""
    if _pattern(tensor) is None:
        return False
    return tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.element_size() >= LEAST_COUNTED


@contextmanager
def in_new_memory(likes: Sequence[Like], device: str) -> Iterator[None]:
    """Memory allocated inside holds poison: with the GNU C library on a CPU all of it, elsewhere outputs like these.

    likes: (shape, dtype) of each, in the expected order of allocation.
    """
    if device == "cpu" and (small := [like for like in likes if _bytes(like) <= CACHED_BYTES]):
        _leave(small, device)
        for size in {_bytes(like) for like in small}:
            _fill_free_chunks(size)
    if device == "cpu" and _fill_what_malloc_gives(FILL_BYTE ^ 0xFF):
        try:
            yield
        finally:
            _fill_what_malloc_gives(0)
        return
    _leave(likes, device)
    yield


def _fill_what_malloc_gives(value: int) -> bool:
    """Returns whether the C library supports it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(M_PERTURB, value))


def _bytes(like: Like) -> int:
    shape, dtype = like
    return int(math.prod(shape) * dtype.itemsize)


def _fill_free_chunks(size: int) -> None:
    """Fills the free chunks from which the GNU C library cuts PyTorch's aligned memory of this size (glibc, malloc.c:
    request2size, _int_memalign). The last one that it puts into its cache it may give back unfilled."""
    libc = ctypes.CDLL(None)
    malloc, free = getattr(libc, "malloc", None), getattr(libc, "free", None)
    if not malloc or not free:
        return
    malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    usable = _chunk(_chunk(size) + ALIGNMENT + LEAST_CHUNK) - HEADER
    chunks = [malloc(usable) for _ in range(FREE_CHUNKS)]
    for chunk in chunks:
        ctypes.memset(chunk, FILL_BYTE, usable)
    for chunk in chunks:
        free(chunk)


def _chunk(size: int) -> int:
    """Bytes of the chunk that holds so many."""
    return max(LEAST_CHUNK, (size + HEADER + 15) & ~15)


def _leave(likes: Sequence[Like], device: str) -> None:
    """Poisons the memory that the allocator will return next."""
    size = max(map(_bytes, likes))
    most = next((number for limit, number in BUFFERS if size <= limit), 1)
    for number in range(most, 0, -1):  # ends at the places of the next tensors
        buffers = [torch.empty(shape, dtype=dtype, device=device) for _ in range(number) for shape, dtype in likes]
        for buffer in buffers:
            fill(buffer)
        del buffer
        buffers.clear()
