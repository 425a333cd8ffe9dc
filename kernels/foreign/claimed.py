"""One result that somebody reports, and a row that could not be read as one."""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from kernels.workload import Workload

LONGEST_NAME = 100


class Refused(ValueError):
    """A row that is no claim. The message says why, as a part of a sentence."""


class NotReadable(ValueError):
    """A file in which no row can be found. The message says why, as a sentence."""


class Record(NamedTuple):
    """A row as its file has it: names and values, not interpreted."""

    where: str
    """ "line 3", or "row 3" of a file whose rows are not lines."""
    values: dict[str, object]


class Claimed(BaseModel):
    """What a row claims. This instrument measured none of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    where: str
    workload: Workload
    kernel: str = Field(min_length=1, max_length=LONGEST_NAME)
    backend: str = Field("", max_length=LONGEST_NAME)
    baseline: str = Field("", max_length=LONGEST_NAME)
    """The kernel that its speedup and slowdown compare with, if the row names one."""
    gpu: str = Field("", max_length=LONGEST_NAME)
    """As the row names it."""
    method: str = Field("", max_length=LONGEST_NAME)
    """What timed it, if the row says so. Times of two methods are not compared."""
    figures: dict[str, float]
    """By the names of kernels/foreign/figures.py; times in ms."""
    correct: bool | None = None
    """Whether the row says that the output was right."""
    assumed: tuple[str, ...] = ()
    """What the row does not say and the reader took, as sentences without a full stop."""

    @property
    def ms(self) -> float | None:
        """Time of one call: the median, a time without a name, or the mean, whichever is there first."""
        return next((self.figures[name] for name in ("p50_ms", "ms", "mean_ms") if name in self.figures), None)

    @property
    def digest(self) -> str:
        """64 hex digits that are equal for equal claims, wherever they stand."""
        same = self.model_dump(mode="json", exclude={"where", "assumed", "workload"}) | {"workload": self.workload.key}
        return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()
