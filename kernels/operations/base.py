"""The base of operations: a frozen pydantic model of an operation's sizes, with these methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import BaseModel, ConfigDict, field_validator

from kernels.dtypes import DTYPE_SHORT, DTYPES, EVERY, Dtype

if TYPE_CHECKING:
    import torch

Distribution = Literal[
    "normal", "uniform", "outliers", "x30", "near_constant", "large_mean", "tiny", "drift", "tails", "negative", "single"
]  # fmt: skip
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
"""Distributions of input values for checks; timing uses normal values. An operation lists those that it is checked with.

outliers: every 61st row, and the last, is 30 times as large. near_constant: the values that a row is normalised by are
almost equal. large_mean: N(8, 1). tiny: N(0, 1) / 1024. drift: partial sums are far larger than the sum. tails: values
with a residue after 8, and after 11, bits of their significand. negative: N(-3, 1/16), where an activation is small and a
sum of almost opposite numbers. single: one term decides. Of a mean, its significand needs more bits than a narrower dtype has; of
softmax, it is in the last column.
"""
OUTLIER_EVERY, LARGE = 61, 30
LARGE_MEAN = 8.0
NEAR = 2.0**-4
"""near_constant: standard deviation of a row whose mean is N(0, 1)."""
TINY = 2.0**-10
NEGATIVE, NEGATIVE_SPREAD = -3.0, 0.25
TAIL_KEPT, TAIL = -0x00710000, 0x00006FFE
"""tails: bits of a float32 that stay as drawn (sign, exponent, four bits of the significand), and bits that are set. The
value is 1 to 1.12 times a power of 2, plus 0.44 units of bfloat16, which holds 0.5 units of tf32: products that leave
out low times low then lose the same share each."""
SYSTEMATIC = 2.0**-16
"""Largest systematic relative error of statistics in float32, such as a variance computed in one pass."""
CUT_OFF = 4e-9
"""The same for each term of a sum: tensor cores cut off bits when they add. An H200 loses 1.0e-9 (GEMM of 4,096
terms in float16: 4.3e-6)."""
ROUNDINGS = 3
"""Results that an honest kernel of unknown work may round on the way to its output."""
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
    """A part of an output, in whole rows, and its correct values: `output[index]` is compared with `reference`, judged
    by `yardstick`."""

    index: Any
    reference: torch.Tensor
    """float64, or float32 where float64 does not fit. Of whole numbers and truth values: these."""
    yardstick: torch.Tensor
    """Result of eager PyTorch in the workload's dtype: its error is allowed."""
    output: int = 0
    """Index of the output, if a kernel returns several."""
    nudged: torch.Tensor | None = None
    """Answers for nudged inputs, (answers, *shape of the reference): see kernels/child/nudges.py. None: nothing is decided."""
    alone: str = ""
    """Name of a part that is judged on its own, beside the whole: "the last row"."""

    @property
    def nbytes(self) -> int:
        """Of the correct values, the yardstick and the nudged answers."""
        return self.reference.nbytes + self.yardstick.nbytes + (0 if self.nudged is None else self.nudged.nbytes)


class Allowance(NamedTuple):
    """What honest kernels of an operation may do that the yardstick does not."""

    slope: float
    """Largest systematic relative error."""
    roundings: int = 0
    """Times that a value is rounded to the dtype on its way to an output, the last time included; 0: not known."""
    terms: int = 0
    """Terms that are summed one after the other."""


class Operation(BaseModel):
    """Validated sizes of one operation, and what depends on them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    baseline: ClassVar[str]
    title: ClassVar[str]
    dtypes: ClassVar[tuple[str, ...]] = tuple(DTYPES)
    """Those that it is measured in."""
    tensors: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Name of each tensor of `inputs`, in their order -> its sizes: what the declaration of a .cu file calls them."""
    options: ClassVar[tuple[str, ...]] = ()
    """Names of the options of `inputs`."""
    later: ClassVar[tuple[str, ...]] = ()
    """Sizes that were added when results were stored already. `sizes` leaves them out where they are their defaults, so
    a stored workload keeps its key."""
    on_request: ClassVar[Mapping[str, Any]] = {}
    """Option that is also a size -> the value at which kernels are not told it. At any other value only those kernels run
    that take it."""
    unit: ClassVar[str] = "TFLOP/s"
    """The headline figure: "TFLOP/s" or "GB/s"."""
    libraries: ClassVar[tuple[tuple[str, str], ...]] = ()
    """(part of a kernel's name in lower case, its library), for `describe_ran`; the first match counts."""

    scalable: ClassVar[bool] = True
    """Whether inputs scaled by a number between -1 and 1 are valid inputs."""
    checked_with: ClassVar[tuple[Distribution, ...]] = ("normal", "uniform", "outliers", "x30")
    """Distributions of the checks, in this order, then from the start."""
    dominated: ClassVar[tuple[Distribution, ...]] = ()
    """Those on which a few terms decide an output: honest kernels differ more from eager PyTorch there."""
    normalises_rows: ClassVar[bool] = False
    """Whether each row (last dimension) of the output is divided by a statistic of its own."""
    operators: ClassVar[tuple[str, ...]] = ()
    """ATen operators that its plain kernels call: a kernel that changes their registrations is suspect."""

    brought: ClassVar[bool] = False
    """Whether its inputs and reference came with its kernels: a process of their own draws and computes them."""

    dtype: Dtype = "float16"

    @field_validator("dtype")
    @classmethod
    def is_one_of_its_dtypes(cls, dtype: str) -> str:
        if dtype not in cls.dtypes:
            known = ", ".join(DTYPE_SHORT[one] for one in cls.dtypes)
            raise ValueError(f"{cls.title} is not measured in {DTYPE_SHORT[dtype]}, only in {known}")
        return dtype

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of the inputs."""
        return EVERY[self.dtype].bytes

    @property
    def distributions(self) -> tuple[Distribution, ...]:
        """Distributions of the checks of this workload."""
        return self.checked_with

    @property
    def allowance(self) -> Allowance:
        """What honest kernels may do that the yardstick does not."""
        return Allowance(slope=SYSTEMATIC)

    def sizes(self) -> dict[str, Any]:
        """The sizes that tell this problem from any other: all, but `later` ones that are their defaults."""
        every = self.model_dump(exclude={"dtype"})
        # In the usual dtype: not every dtype allows what is the default in all.
        plain = type(self)(**{name: size for name, size in every.items() if name not in self.later})
        return {name: size for name, size in every.items() if name not in self.later or size != getattr(plain, name)}

    def label(self) -> str:
        """Short text of the sizes: "B=4 H=16 S=512 D=64 causal"."""
        raise NotImplementedError

    def flops(self) -> int:
        """Floating-point operations of one call, a multiply-add counted as 2; unmasked elements only."""
        raise NotImplementedError

    def dense_flops(self) -> int:
        """FLOPs of one call if masked elements counted, as some reports count them."""
        return self.flops()

    def flops_formula(self) -> tuple[str, str]:
        """`flops` as a formula: in symbols, and with this problem's sizes."""
        return "FLOPs of one call", f"{self.flops():,}"

    def bytes_moved(self) -> tuple[int, int]:
        """(input bytes, output bytes) of one call: each distinct input once, each output once, in the storage dtype."""
        raise NotImplementedError

    def queries(self) -> int | None:
        """Queries of one call: rows that ask, such as those of attention's q. None: the operation has none."""
        return None

    def heads_of(self) -> tuple[int, int] | None:
        """(batch, heads) of one call. None: the operation has no heads."""
        return None

    @property
    def work_is_known(self) -> bool:
        """Whether FLOPs or bytes of a call are known: else there are no rates, and no limit."""
        return bool(self.flops() or sum(self.bytes_moved()))

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all inputs and outputs: the least memory that one call needs."""
        return sum(self.bytes_moved())

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


def allowance_of_unknown(dtype: str, terms: int) -> Allowance:
    """Of work that nobody described: the reference may be one of PyTorch's kernels, a kernel of plain operators rounds
    after each of them, and a plain loop adds `terms` numbers in turn. dtype: of the first floating-point output; empty:
    there is none."""
    folded = DTYPES[dtype].folded if dtype in DTYPES else 0.0
    return Allowance(ROUNDINGS * folded + SYSTEMATIC + CUT_OFF * terms, ROUNDINGS, terms)


def draw(
    shape: tuple[int, ...], dtype: str, device: str, generator: torch.Generator, distribution: Distribution = "normal"
) -> torch.Tensor:
    """Values of a distribution; N(0, 1) for one that only an operation knows. Rows are the last dimension."""
    import torch

    kind: dict[str, Any] = {"generator": generator, "device": device, "dtype": getattr(torch, EVERY[dtype].stored)}
    if distribution == "uniform":
        return torch.rand(*shape, **kind)
    values = torch.randn(*shape, **kind)
    if distribution == "x30":
        values *= LARGE
    elif distribution == "outliers":
        rows, row = values.view(-1, shape[-1]), torch.arange(values.numel() // shape[-1], device=device)
        count = shape[-2] if len(shape) > 1 else len(rows)
        first, last = (
            torch.randint(most, (1,), generator=generator, device=device) for most in (min(OUTLIER_EVERY, count), 2)
        )
        rows[(row % OUTLIER_EVERY == first) | ((row + 1) % count + last == 0)] *= LARGE
    elif distribution == "near_constant":
        values.mul_(NEAR).add_(torch.randn(*shape[:-1], 1, **kind))
    elif distribution == "large_mean":
        values += LARGE_MEAN
    elif distribution == "tiny":
        values *= TINY
    elif distribution == "negative":
        values.mul_(NEGATIVE_SPREAD).add_(NEGATIVE)
    elif distribution == "tails":
        values.view(torch.int32).bitwise_and_(TAIL_KEPT).bitwise_or_(TAIL)
    return values
