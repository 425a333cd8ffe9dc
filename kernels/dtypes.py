"""The dtypes that can be measured: one row each, with everything that follows from a dtype. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal


@dataclass(frozen=True)
class DtypeInfo:
    """One dtype.

    How wrong a right kernel may be is judged by the yardstick: what plain eager PyTorch makes of the same inputs in the
    same dtype (kernels/analysis/correctness.py).
    """

    name: str
    """PyTorch's: "float16"."""
    short: str
    """As people write it: "fp16"."""
    bytes: int
    """Of one element."""
    peak: str
    """The field of roofline.Peak with its datasheet peak."""
    bound: str
    """The field of roofline.Peak with the peak of the fastest unit that could do it: no kernel can be faster."""
    frobenius_cap: float
    """Largest relative Frobenius error of any right kernel."""
    factor: int
    """A kernel may be this many times as wrong as the yardstick."""
    unusual: int = 1
    """So many times more on inputs other than N(0, 1)."""
    slack: float = 0.0
    """Relative error that is allowed beside it."""
    matmul_size: dict[str, int] = field(default_factory=dict)
    """Kind of device -> rows of the square matrices whose product tells what it reaches; none where it is not asked."""


_ROWS = (
    DtypeInfo(
        "float16", "fp16", bytes=2, peak="fp16", bound="fp16", frobenius_cap=2e-3, factor=2, matmul_size={"cuda": 8192}
    ),
    DtypeInfo(
        "bfloat16", "bf16", bytes=2, peak="fp16", bound="fp16", frobenius_cap=1e-2, factor=2, matmul_size={"cuda": 8192}
    ),
    # factor: both errors are chance, of the order of summing: on an H200 PyTorch's own kernels reach 2.3 times; the next
    # that is wrong, tf32, is a hundred times further away.
    # unusual: an error hangs on a few large scores there, and kernels written as plain loops are further from the yardstick
    # by chance.
    # slack: one key has a yardstick without error, and products of three tf32 parts, as PyTorch takes for float32, lose the
    # last bit.
    # peak: float32 means float32, tf32 is another dtype; bound: but the tensor cores could do it as tf32.
    DtypeInfo(
        "float32",
        "fp32",
        bytes=4,
        peak="fp32",
        bound="tf32",
        frobenius_cap=1e-5,
        factor=4,
        unusual=8,
        slack=2**-23,
        matmul_size={"cuda": 4096, "cpu": 768},
    ),
)

DTYPES = {row.name: row for row in _ROWS}
DTYPE_SHORT = {row.name: row.short for row in _ROWS}

if TYPE_CHECKING:
    Dtype = str
else:
    Dtype = Literal[tuple(DTYPES)]
    """The name of a dtype of the table, for pydantic to check."""
