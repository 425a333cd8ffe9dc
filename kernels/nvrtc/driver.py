"""The driver: machine code onto the device, and launches. All that needs a GPU is in this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WITHOUT_ASKING = 48 * 1024
"""Bytes of dynamic shared memory that a block may have without being asked for."""
Launch = Callable[[int], None]
"""Launches a kernel on a stream: its handle."""


class Function:
    """A kernel on the device of the current context."""

    def __init__(self, cubin: bytes, symbol: str) -> None:
        from cuda.bindings import driver
        from cuda.core import ObjectCode

        self._driver = driver
        self._code = ObjectCode.from_cubin(cubin)
        self._kernel = self._code.get_kernel(symbol)
        self.handle = driver.CUfunction(int(self._kernel.handle))

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
