"""Operations on a matrix of independent rows: their sizes, and the sums of their yardsticks."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, model_validator

from kernels.operations.base import EDGE_SIZES, LARGE, Operation

if TYPE_CHECKING:
    import torch

CHUNK = 2**24
"""Elements of a chunk of rows checked at once: 128 MiB in float64."""
LONGEST_CHAIN = 2**16
"""Most terms that a sum of a yardstick adds in turn. The total of a longer chain hardly changes in float32, so it would allow any
error."""
LARGE_COLUMNS = 16
FOLDED = ("batch", "seq_len", "dim")
"""Sizes of a batch of sequences, which may stand for rows and columns."""


class Rows(Operation):
    """A matrix of rows x columns, limited by memory. The sizes may also be given as batch, seq_len and dim: the tokens of
    all sequences are then the rows. Both ways are the same workload."""

    unit: ClassVar[str] = "GB/s"
    across: ClassVar[str] = "cols"
    """The size that `dim` stands for."""
    narrowest: ClassVar[int] = 1
    """Fewest columns."""

    rows: int = Field(ge=1, le=16_777_216, title="Rows", description="Of a batch of sequences: batch x length.")

    @model_validator(mode="before")
    @classmethod
    def sequences_are_rows(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not any(size in values for size in FOLDED):
            return values
        if "rows" in values or cls.across in values:
            raise ValueError(f"give rows and {cls.across}, or {', '.join(FOLDED)}, not both")
        if absent := [size for size in FOLDED if size not in values]:
            raise ValueError(f"{absent[0]} is missing: rows are batch x seq_len, {cls.across} are dim")
        folded = [values[size] for size in FOLDED]
        if wrong := [size for size in folded if type(size) is not int or size < 1]:
            raise ValueError(f"{', '.join(FOLDED)} must be whole numbers above 0, not {wrong[0]!r}")
        others = {name: value for name, value in values.items() if name not in FOLDED}
        return others | {"rows": folded[0] * folded[1], cls.across: folded[2]}

    @property
    def width(self) -> int:
        """Columns of a row."""
        return getattr(self, self.across)

    def label(self) -> str:
        return f"{self.rows} x {self.width}"

    def edges(self) -> list[Any]:
        """Odd rows and odd columns."""
        sizes = [(5, max(size, self.narrowest)) for size in EDGE_SIZES] + [(size, 1000) for size in EDGE_SIZES]
        return [self.model_copy(update={"rows": rows, self.across: width}) for rows, width in sizes]

    def chunks(self) -> Iterator[slice]:
        """All rows, in chunks of about CHUNK elements."""
        step = max(1, CHUNK // self.width)
        for first in range(0, self.rows, step):
            yield slice(first, first + step)


def enlarge_columns(x: torch.Tensor, generator: torch.Generator) -> None:
    """Makes the last column and others, drawn by chance, so large that they hold most of the sum of squares of their row:
    a part of a row does not show its statistics. x: (rows, columns), changed in place."""
    import torch

    columns = x.shape[-1]
    some = torch.randint(columns, (LARGE_COLUMNS - 1,), generator=generator, device=x.device)
    some = torch.cat([some, some.new_full((1,), columns - 1)]).unique()
    x[:, some] *= max(LARGE, math.sqrt(columns / LARGE_COLUMNS))


def sum_in_turn(values: torch.Tensor) -> torch.Tensor:
    """Sums of the last dimension, which is kept with size 1, term by term: the longest chain of roundings that a kernel may
    have, in parts of LONGEST_CHAIN terms. PyTorch sums pairwise."""
    import torch

    return _chain(torch.cat([_chain(part) for part in values.split(LONGEST_CHAIN, dim=-1)], dim=-1))


def _chain(values: torch.Tensor) -> torch.Tensor:
    columns = values.mT.contiguous()
    total = columns[0].clone()
    for column in columns[1:]:
        total += column
    return total.unsqueeze(-1)


def total_in_turn(values: Sequence[float]) -> float:
    """The sum of numbers, rounded to float32 after each term, in parts of LONGEST_CHAIN terms."""
    import torch

    whole = len(values) - len(values) % LONGEST_CHAIN
    parts = torch.tensor(values[:whole], dtype=torch.float32).view(-1, LONGEST_CHAIN)
    return _total([*_chain(parts).flatten().tolist(), _total(values[whole:])]) if whole else _total(values)


def _total(values: Iterable[float]) -> float:
    total = 0.0
    for value in values:
        total = ctypes.c_float(total + value).value
    return total
