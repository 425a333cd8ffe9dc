"""The dtypes: one row each, with everything that depends on the dtype. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal


@dataclass(frozen=True)
class DtypeInfo:
    """One dtype.

    A kernel's error is judged by the yardstick: the error of eager PyTorch on the same inputs in the same dtype
    (kernels/analysis/correctness.py).
    """

    name: str
    """PyTorch's name: "float16"."""
    short: str
    """Short name: "fp16"."""
    bytes: int
    """Bytes of one element."""
    peak: str
    """Unit of the datasheet's figure (kernels/analysis/peaks.py)."""
    ways: dict[str, int]
    """Unit that can compute it -> its products that make one product of this dtype."""
    mantissa: int
    """Stored bits of the significand."""
    frobenius_cap: float
    """Largest relative Frobenius error allowed on N(0, 1) inputs."""
    factor: int
    """Allowed error, as a multiple of the yardstick's."""
    unusual: int = 1
    """Extra factor on inputs other than N(0, 1)."""
    slack: float = 0.0
    """Relative error allowed in addition."""
    matmul_size: dict[str, int] = field(default_factory=dict)
    """Kind of device -> rows of the square matrices of the calibration; empty: not calibrated."""
    tensors: str = ""
    """PyTorch's name of the tensors' dtype, where it is not `name`."""

    @property
    def stored(self) -> str:
        """PyTorch's name of the dtype of the inputs."""
        return self.tensors or self.name

    @property
    def unit(self) -> float:
        """Largest relative error of one rounding."""
        return 2.0 ** -(self.mantissa + 1)

    @property
    def folded(self) -> float:
        """Systematic relative error of inputs multiplied by a constant and rounded. An input has 2^mantissa significands:
        each has its own rounding error, and their mean is not zero. 1.25 times the error expected of so many: head
        dims 16 to 512, scaled by 1/sqrt(D) with or without log2(e), reach 0.93 times in bfloat16 (measured)."""
        return 1.25 * self.unit / 2 ** (self.mantissa / 2)


_ROWS = (
    DtypeInfo(
        "float16",
        "fp16",
        bytes=2,
        peak="fp16",
        ways={"fp16": 1, "fp16_sums": 1},
        mantissa=10,
        frobenius_cap=2e-3,
        factor=2,
        matmul_size={"cuda": 8192},
    ),
    DtypeInfo(
        "bfloat16",
        "bf16",
        bytes=2,
        peak="fp16",
        ways={"fp16": 1},
        mantissa=7,
        frobenius_cap=1e-2,
        factor=2,
        matmul_size={"cuda": 8192},
    ),
    # factor: both errors depend on the order of summation. On an H200 PyTorch's own kernels reach 2.3 times; the next
    # wrong result, tf32, is a hundred times larger.
    # unusual: kernels written as plain loops differ more from the yardstick on these inputs.
    # slack: with one key the yardstick has no error, and three tf32 products, as PyTorch uses for float32, lose the last
    # bit.
    # ways: a float32 product is as exact as three of tf32 or of scaled fp16, and passes the checks; one is not.
    DtypeInfo(
        "float32",
        "fp32",
        bytes=4,
        peak="fp32",
        ways={"fp32": 1, "tf32": 3, "fp16": 3},
        mantissa=23,
        frobenius_cap=1e-5,
        factor=4,
        unusual=8,
        slack=2**-23,
        matmul_size={"cuda": 4096, "cpu": 768},
    ),
)

_NARROW = (
    # ways: fp16 has as many bits as tf32, and one product of scaled fp16 passes the same checks.
    DtypeInfo(
        "tf32",
        "tf32",
        bytes=4,
        peak="tf32",
        ways={"tf32": 1, "fp16": 1},
        mantissa=10,
        frobenius_cap=2e-3,
        factor=2,
        tensors="float32",
    ),
    # Outputs are in bfloat16, and judged as such. ways: every fp8 number is an fp16 number.
    DtypeInfo(
        "float8_e4m3fn",
        "fp8",
        bytes=1,
        peak="fp8",
        ways={"fp8": 1, "fp16": 1},
        mantissa=3,
        frobenius_cap=8e-2,
        factor=2,
    ),
)

DTYPES = {row.name: row for row in _ROWS}
"""The dtypes of every operation."""
NARROW = {row.name: row for row in _NARROW}
"""Those that an operation has only if it lists them, and a kernel only if it names them."""
EVERY = DTYPES | NARROW
DTYPE_SHORT = {row.name: row.short for row in EVERY.values()}

if TYPE_CHECKING:
    Dtype = str
else:
    Dtype = Literal[tuple(EVERY)]
    """The name of a dtype of the table, for pydantic to check."""
