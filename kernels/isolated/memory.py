"""Input sets in memory that a cell and the trusted process see, and outputs in memory of a cell."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from kernels.catalog import Unsupported
from kernels.child.outputs import why_not_plain
from kernels.contract.isolation import Output
from kernels.isolated import device_memory
from kernels.operations.base import Inputs, Like, Operation

ALIGNMENT = 512
"""Of every tensor, in bytes: as PyTorch's allocator on a GPU."""
LARGE, LARGE_ALIGNMENT = 10 * 2**20, 2**21
"""The same of tensors of 10 MiB or more."""


class Layout:
    """Where the tensors of one set lie."""

    def __init__(self, likes: Iterable[Like], options: dict[str, Any] | None = None) -> None:
        self.options = options or {}
        self.places: list[tuple[int, tuple[int, ...], torch.dtype]] = []
        offset, largest = 0, ALIGNMENT
        for shape, dtype in likes:
            nbytes = math.prod(shape) * dtype.itemsize
            alignment = LARGE_ALIGNMENT if nbytes >= LARGE else ALIGNMENT
            offset, largest = _rounded(offset, alignment), max(largest, alignment)
            self.places.append((offset, shape, dtype))
            offset += nbytes
        self.nbytes = _rounded(offset, largest)

    @classmethod
    def of(cls, problem: Operation, device: str) -> Layout:
        """Of its inputs."""
        example = problem.inputs(device, 0)
        if not all(tensor.is_contiguous() for tensor in example.tensors):
            raise ValueError(f"the inputs of {problem.name} are not contiguous: they cannot be shared")
        return cls(((tuple(one.shape), one.dtype) for one in example.tensors), example.options)

    def sets(self, memory: torch.Tensor, count: int) -> list[Inputs]:
        """Sets as views of the memory."""
        found = []
        for start in (number * self.nbytes for number in range(count)):
            tensors = []
            for offset, shape, dtype in self.places:
                end = start + offset + math.prod(shape) * dtype.itemsize
                tensors.append(memory[start + offset : end].view(dtype).view(shape))
            found.append(Inputs(tuple(tensors), self.options))
        return found


def _rounded(offset: int, alignment: int) -> int:
    """The next multiple of an alignment."""
    return -(-offset // alignment) * alignment


def mapped(path: str, nbytes: int) -> torch.Tensor:
    """Shared memory of the host as bytes."""
    fd = os.open(path, os.O_RDWR)
    try:
        return torch.frombuffer(mmap.mmap(fd, nbytes), dtype=torch.uint8)
    finally:
        os.close(fd)


def outputs_of(out: Any) -> tuple[list[Output], str]:
    """What one call returned, as claims; and why it is not tensors, if so."""
    claims = []
    for one in tuple(out) if isinstance(out, tuple | list) else (out,):
        if why := why_not_plain(one):
            return [], why
        if one.is_neg():  # its memory holds other values
            raise Unsupported(
                "isolated, a view that PyTorch negates when it is read cannot be compared: return its resolve_neg()"
            )
        claims.append(
            Output(
                address=one.data_ptr(),
                shape=list(one.shape),
                strides=list(one.stride()),
                dtype=str(one.dtype).removeprefix("torch."),
                device=one.device.type,
            )
        )
    return claims, ""


def span(output: Output) -> int:
    """Bytes from an output's first element to the end of its last."""
    if 0 in output.shape:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(output.shape, output.strides, strict=True))
    return (last + 1) * dtype_of(output).itemsize


def dtype_of(output: Output) -> torch.dtype:
    found = getattr(torch, output.dtype, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"there is no dtype {output.dtype}")
    return found


class Reader:
    """Copies outputs out of a cell's memory. Every address is a claim of the cell: reads fail, nothing else."""

    def __init__(self, kind: str, pid: int, most_bytes: int) -> None:
        self.kind, self.pid, self.most_bytes = kind, pid, most_bytes
        self.segments: list[tuple[int, int, int]] = []
        """(start in the cell, bytes, start here) of device memory."""

    def open(self, segments: Sequence[tuple[int, str]]) -> None:
        """Opens allocations of the cell: (its start there, its handle in hex). On a CPU: raises OSError if the memory of the
        cell may not be read."""
        if self.kind == "cpu":
            os.close(os.open(f"/proc/{self.pid}/mem", os.O_RDONLY))
        for start, handle in segments:
            here = device_memory.open_handle(bytes.fromhex(handle))
            self.segments.append((start, device_memory.allocation(here)[1], here))

    def close(self) -> None:
        for _, _, here in self.segments:
            device_memory.close_handle(here)
        self.segments.clear()

    def must_have_room(self, outputs: Sequence[Output]) -> None:
        """Raises ValueError if the outputs of one call are too large together."""
        sizes = [max(span(one), math.prod(one.shape) * dtype_of(one).itemsize) for one in outputs]
        if sum(sizes) > self.most_bytes:
            raise ValueError("an output is too large")

    def copy(self, output: Output) -> torch.Tensor:
        """The output as a tensor of this process. Raises ValueError or OSError if there is no such memory."""
        nbytes, dtype = span(output), dtype_of(output)
        if min(output.strides, default=0) < 0 or min(output.shape, default=0) < 0:
            raise ValueError("a size is negative")
        if max(nbytes, math.prod(output.shape) * dtype.itemsize) > self.most_bytes:
            raise ValueError("an output is too large")
        flat = self._bytes(output.address, nbytes).view(dtype)
        return flat.as_strided(output.shape, output.strides).contiguous()

    def _bytes(self, address: int, nbytes: int) -> torch.Tensor:
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8, device=self.kind)
        if self.kind == "cuda":
            for start, size, here in self.segments:
                if start <= address and address + nbytes <= start + size:
                    return device_memory.as_bytes(here + address - start, nbytes).clone()
            raise ValueError("an output lies in no memory of its process")
        buffer = bytearray(nbytes)
        with open(f"/proc/{self.pid}/mem", "rb", 0) as memory:
            read = os.preadv(memory.fileno(), [buffer], address)
        if read != nbytes:
            raise ValueError("an output lies in no memory of its process")
        return torch.frombuffer(buffer, dtype=torch.uint8)
