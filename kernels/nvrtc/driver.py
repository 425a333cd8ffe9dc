"""The device: what it has, machine code onto it, and launches. All that needs a GPU is in this file."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch

from kernels.nvrtc import compiler, toolchain
from kernels.nvrtc.arguments import map_room
from kernels.nvrtc.tensor_maps import Box, Layout, Refused, layout

WITHOUT_ASKING = 48 * 1024
"""Bytes of dynamic shared memory that a block may have without being asked for."""
KEPT_MAPS = 512
"""Tensor maps that are kept: to encode one takes microseconds."""
INVALID_VALUE = 1
"""What the driver answers if it has no such map."""
Launch = Callable[[int], None]
"""Launches a kernel on a stream: its handle."""


class Device(NamedTuple):
    """A CUDA device."""

    architecture: str
    """As the compiler calls it: "sm_90a"."""
    multiprocessors: int
    shared_bytes: int
    """The most that a block may have."""

    @property
    def has_tensor_maps(self) -> bool:
        return int(self.architecture.removeprefix("sm_").rstrip("a")) >= 90


class Cuda:
    """The devices of PyTorch."""

    def why_not(self, tensor: torch.Tensor) -> str:
        """Why nothing can be launched on this tensor's device; empty if it can."""
        if tensor.device.type != "cuda":
            return "needs a CUDA device"
        ours, of_torch = toolchain.cuda_major(), int((torch.version.cuda or "0").split(".")[0])
        if ours != of_torch:
            return (
                f"PyTorch is of CUDA {of_torch} and the package cuda-bindings of CUDA {ours}: "
                f"pip install 'cuda-bindings=={of_torch}.*'"
            )
        return toolchain.why_not()

    def device(self, tensor: torch.Tensor) -> Device:
        found = torch.cuda.get_device_properties(tensor.device)
        architecture = compiler.architecture(found.major, found.minor)
        return Device(architecture, found.multi_processor_count, found.shared_memory_per_block_optin)

    def load(self, made: compiler.Compiled) -> Function:
        return Function(made.cubin, made.symbol)

    def tensor_map(self, tensor: torch.Tensor, box: Box) -> bytes:
        """Raises Refused where the hardware has no such map."""
        return _tensor_map(tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), box)

    def current_stream(self) -> Callable[[int], int]:
        """A function: number of a device -> handle of PyTorch's current stream on it."""
        return torch._C._cuda_getCurrentRawStream


@lru_cache(maxsize=KEPT_MAPS)
def _tensor_map(address: int, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...], box: Box) -> bytes:
    return _encoded(layout(box, str(dtype).removeprefix("torch."), dtype.itemsize, address, shape, stride))


def _encoded(told: Layout) -> bytes:
    """The only call that needs a driver. Elements outside the tensor are zeros."""
    rank, found = len(told.sizes), map_room()
    wide, narrow = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
    error = _encode()(
        found, told.kind, rank, ctypes.c_void_p(told.address), wide(*told.sizes), wide(*told.strides), narrow(*told.box),
        narrow(*[1] * rank), 0, told.swizzle, told.l2, 0,
    )  # fmt: skip
    if error == INVALID_VALUE:
        raise Refused(
            f"the driver has no map of sizes {told.sizes} with strides of {told.strides} bytes and a box of {told.box}"
        )
    if error:
        raise RuntimeError(f"CUDA error {error} of cuTensorMapEncodeTiled")
    return bytes(found.raw)


@cache
def _encode() -> Any:
    """By ctypes: cuda-bindings writes the map to memory of Python's, and the driver wants it aligned to 64 bytes."""
    return ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled


class Function:
    """A kernel on the device of the current context."""

    def __init__(self, cubin: bytes, symbol: str) -> None:
        from cuda.bindings import driver
        from cuda.core import ObjectCode

        self._driver = driver
        self._code = ObjectCode.from_cubin(cubin)  # unloaded when it is freed
        self._kernel = self._code.get_kernel(symbol)
        answer = driver.cuKernelGetFunction(self._kernel.handle)
        self.check(answer)
        self.handle = answer[1]

    def allow_shared(self, nbytes: int) -> None:
        """Lets its blocks have this much dynamic shared memory."""
        if nbytes > WITHOUT_ASKING:
            which = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.check(self._driver.cuFuncSetAttribute(self.handle, which, nbytes))

    def launcher(self, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int, arguments: int) -> Launch:
        """arguments: address of an array of pointers to the arguments, which are read at each launch."""
        launch, handle, check = self._driver.cuLaunchKernel, self.handle, self.check

        def run(stream: int) -> None:
            (error,) = launch(handle, *grid, *block, shared, stream, arguments, 0)
            if error:
                check((error,))

        return run

    def check(self, answer: tuple[Any, ...]) -> None:
        if error := answer[0]:
            _, name = self._driver.cuGetErrorName(error)
            raise RuntimeError(f"CUDA error: {name.decode()}")
