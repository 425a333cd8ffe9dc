"""A problem that came with its kernels: inputs and reference are files of a submission, so nothing here knows its work.

It is no operation of the catalogue: it has no folder, no config and no board of its own. Only an isolated measurement
runs it: a further process, kernels/isolated/problem.py, draws inputs and computes correct values.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field

from kernels.catalog import PROBLEM, operation
from kernels.operations.base import Distribution, Operation


@operation(PROBLEM, baseline="", title="Problems that came with their kernels")
class Problem(Operation):
    """One problem: a submission whose kernel is the reference, and the baseline. FLOPs and bytes are unknown: 0."""

    scalable: ClassVar[bool] = False
    checked_with: ClassVar[tuple[Distribution, ...]] = ("normal",)
    brought: ClassVar[bool] = True
    later: ClassVar[tuple[str, ...]] = ("case",)

    problem: str = Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+-]{0,79}@[0-9a-f]{10}$",
        title="Problem",
        description="Name and version of the submission with its reference.",
    )

    case: str = Field(
        "",
        max_length=110,
        pattern=r"^[A-Za-z0-9_=.,:+ ()-]*$",
        title="Case",
        description="Its sizes, if the problem has several: those of a benchmark or a workload among its files.",
    )

    def label(self) -> str:
        return f"{self.problem} {self.case}".rstrip()

    def flops(self) -> int:
        return 0

    def bytes_moved(self) -> tuple[int, int]:
        return 0, 0

    def edges(self) -> list[Self]:
        return []
