"""The base of operations: a frozen pydantic model of an operation's sizes, with these methods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict

from kernels.dtypes import DTYPES, Dtype

if TYPE_CHECKING:
    import torch

Distribution = Literal["normal", "uniform", "outliers", "x30"]
DISTRIBUTIONS: tuple[Distribution, ...] = ("normal", "uniform", "outliers", "x30")
"""Distributions of input values for checks; timing uses normal values. outliers: every 61st row is 30 times as
large."""
OUTLIER_EVERY, LARGE = 61, 30
EDGE_SIZES = (1, 63, 65, 127, 129)
"""Sizes around those of tiles: kernels are most often wrong here."""


@dataclass
class Inputs:
    """The arguments of one call: `kernel(*tensors, **options)`."""

    tensors: tuple[torch.Tensor, ...]
    options: dict[str, Any]

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors)


Like = tuple[tuple[int, ...], "torch.dtype"]
"""Shape and dtype of an output; () is the shape of a single number."""


@dataclass
class Piece:
    """A part of an output and its correct values: `output[index]` is compared with `reference`, judged by
    `yardstick`."""

    index: Any
    reference: torch.Tensor
    """float64, or float32 where float64 does not fit. Of whole numbers and truth values: these."""
    yardstick: torch.Tensor
    """Result of eager PyTorch in the workload's dtype: its error is allowed."""
    output: int = 0
    """Index of the output, if a kernel returns several."""


class Operation(BaseModel):
    """Validated sizes of one operation, and what depends on them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    baseline: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str] = "TFLOP/s"
    """The headline figure: "TFLOP/s" or "GB/s"."""
    libraries: ClassVar[tuple[tuple[str, str], ...]] = ()
    """(part of a kernel's name in lower case, its library), for `describe_ran`; the first match counts."""

    scalable: ClassVar[bool] = True
    """Whether inputs scaled by a number between -1 and 1 are valid inputs."""

    dtype: Dtype = "float16"

    @property
    def element_bytes(self) -> int:
        """Bytes of one element in the workload's dtype."""
        return DTYPES[self.dtype].bytes

    def label(self) -> str:
        """Short text of the sizes: "B=4 H=16 S=512 D=64 causal"."""
        raise NotImplementedError

    def flops(self) -> int:
        """Floating-point operations of one call, a multiply-add counted as 2; unmasked elements only."""
        raise NotImplementedError

    def bytes_moved(self) -> tuple[int, int]:
        """(input bytes, output bytes) of one call: each distinct input once, each output once, in the storage dtype."""
        raise NotImplementedError

    def inputs(self, device: str, seed: int, distribution: Distribution = "normal") -> Inputs:
        """Fresh inputs on a device from a distribution. The same seed gives the same inputs."""
        raise NotImplementedError

    def edges(self) -> list[Self]:
        """Small problems of this kind at EDGE_SIZES, where kernels are most often wrong."""
        raise NotImplementedError

    def check(self, inputs: Inputs, seed: int, thorough: bool) -> Iterator[Piece]:
        """Pieces of the correct values, some of every output. thorough: all of it, even if float64 fits only
        samples.

        An operation without correct values has no pieces: then its results have times and ratios, but no word.
        """
        return iter(())

    def output_like(self, inputs: Inputs) -> Like | tuple[Like, ...]:
        """(shape, dtype) of the tensor that a kernel must return, or a tuple of these for several tensors.

        Floating-point, integer or bool. A kernel returns several as a tuple or a list, in this order.
        """
        raise NotImplementedError

    @classmethod
    def describe_ran(cls, kernel: str) -> str:
        """The library of a kernel that ran, from its name; empty if unknown."""
        return next((library for part, library in cls.libraries if part in kernel.lower()), "")


def draw(
    shape: tuple[int, ...], dtype: str, device: str, generator: torch.Generator, distribution: Distribution = "normal"
) -> torch.Tensor:
    """Values of a distribution: N(0, 1), uniform in [0, 1), N(0, 1) with outlier rows (last dimension), or 30 N(0, 1)."""
    import torch

    kind: dict[str, Any] = {"generator": generator, "device": device, "dtype": getattr(torch, dtype)}
    if distribution == "uniform":
        return torch.rand(*shape, **kind)
    values = torch.randn(*shape, **kind)
    if distribution == "x30":
        values *= LARGE
    elif distribution == "outliers":
        values.view(-1, shape[-1])[::OUTLIER_EVERY] *= LARGE
    return values
