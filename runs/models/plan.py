"""What a session plans and decides: phases, success criteria, blockers and options. Rows in its JSON columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from django.db import models

from kernels.analysis.criteria import Criterion

MOST = 40
"""Rows of each kind."""


class PhaseState(models.TextChoices):
    PENDING = "pending"
    ACTIVE = "in progress"
    DONE = "done"
    BLOCKED = "blocked"
    SKIPPED = "skipped"


class BlockerState(models.TextChoices):
    OPEN = "open"
    AROUND = "worked around"
    RESOLVED = "resolved"


@dataclass(frozen=True)
class _Row:
    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """From its column. Keys that it does not know are left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in row.items() if name in known})


@dataclass(frozen=True)
class Phase(_Row):
    number: int
    title: str
    state: str = PhaseState.PENDING
    planned_min: int | None = None
    actual_min: int | None = None
    after: Sequence[int] = ()
    """Numbers of the phases that it needs."""
    text: str = ""

    def waits_for(self, phases: Sequence[Phase]) -> list[Phase]:
        """The phases that it needs and that have not ended."""
        ended = (PhaseState.DONE, PhaseState.SKIPPED)
        if self.state in ended:
            return []
        return [one for one in phases if one.number in self.after and one.state not in ended]


@dataclass(frozen=True)
class Blocker(_Row):
    title: str
    state: str = BlockerState.OPEN
    text: str = ""


@dataclass(frozen=True)
class Option(_Row):
    title: str
    minutes: int | None = None
    """The time that it would take."""
    text: str = ""
    chosen: bool = False


@dataclass(frozen=True)
class Wanted(_Row):
    """A success criterion, with its name in a person's words."""

    title: str = ""
    kernel: str = ""
    speedup: float | None = None
    at_least: int | None = None
    workloads: str = ""
    p90: bool = False
    correct: bool = False
    sm_busy: float | None = None
    """In percent."""
    no_spills: bool = False

    @property
    def criterion(self) -> Criterion:
        busy = self.sm_busy / 100 if self.sm_busy is not None else None
        return Criterion(
            self.kernel, self.speedup, self.at_least, self.workloads, self.p90, self.correct, busy, self.no_spills
        )
