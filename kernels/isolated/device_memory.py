"""Memory of a CUDA device that two processes see: legacy IPC handles, by the driver's own functions.

A handle names a whole allocation of cudaMalloc; the expandable allocator of PyTorch has none. The current context must
be the primary one (PyTorch has made it).
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

HANDLE_BYTES = 64
LAZY_PEER_ACCESS = 1


class Handle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = [("reserved", ctypes.c_char * HANDLE_BYTES)]


INVALID_VALUE, NOT_SUPPORTED = 1, 801
"""What the driver answers where memory has no handle."""


class DriverError(RuntimeError):
    """A function of the CUDA driver failed."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} failed with CUDA error {code}")
        self.code = code


def _driver(function: str, *arguments: Any) -> None:
    if code := getattr(ctypes.CDLL("libcuda.so.1"), function)(*arguments):
        raise DriverError(function, code)


def allocate(nbytes: int) -> int:
    """The address of new device memory that can be shared. It lives as long as the process."""
    address = ctypes.c_uint64()
    _driver("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
    return address.value


def free(address: int) -> None:
    _driver("cuMemFree_v2", ctypes.c_uint64(address))


def allocation(address: int) -> tuple[int, int]:
    """(start, bytes) of the allocation that holds an address."""
    start, size = ctypes.c_uint64(), ctypes.c_size_t()
    _driver("cuMemGetAddressRange_v2", ctypes.byref(start), ctypes.byref(size), ctypes.c_uint64(address))
    return start.value, size.value


def handle_of(start: int) -> bytes:
    """The handle of an allocation, for another process."""
    handle = Handle()
    _driver("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(start))
    return bytes(handle)


def open_handle(raw: bytes) -> int:
    """The address, in this process, of an allocation of another one."""
    address = ctypes.c_uint64()
    handle = Handle.from_buffer_copy(raw)
    _driver("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, ctypes.c_uint(LAZY_PEER_ACCESS))
    return address.value


def close_handle(address: int) -> None:
    _driver("cuIpcCloseMemHandle", ctypes.c_uint64(address))


class _Bytes:
    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def as_bytes(address: int, nbytes: int) -> torch.Tensor:
    """Device memory as a tensor of bytes. It does not keep the memory alive."""
    return torch.as_tensor(_Bytes(address, nbytes), device="cuda")
