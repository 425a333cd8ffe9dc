"""Triton's interpreter, which runs Triton kernels on a CPU, with the bfloat16 of a GPU."""

from __future__ import annotations

from typing import Any


def mend_bfloat16() -> None:
    """Makes the interpreter's bfloat16 that of a GPU.

    The interpreter keeps bfloat16 as the 16-bit integers of its bits. It takes products of those integers in `tl.dot`,
    and it cuts float32 off where a GPU rounds to nearest even. Here products are of the numbers, and PyTorch rounds.
    """
    import numpy as np
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    their_dot, their_cast = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl

    def widened(x: Any) -> Any:
        return TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        if a.dtype.scalar == tl.bfloat16:
            a, b = widened(a), widened(b)
        return their_dot(self, a, b, *rest)

    def cast_impl(self: Any, x: Any, to: Any) -> Any:
        if (x.dtype.scalar, to.scalar) != (tl.float32, tl.bfloat16):
            return their_cast(self, x, to)
        rounded = torch.from_numpy(np.ascontiguousarray(x.data)).bfloat16()
        return TensorHandle(rounded.view(torch.int16).numpy().view(np.uint16), tl.bfloat16)

    InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl = create_dot, cast_impl
