"""Tier scales: named factors over the baseline, with grades."""

from __future__ import annotations

import math
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.db import models

MOST_TIERS, LONGEST_NAME, LONGEST_GRADE = 20, 40, 6
LARGEST_FACTOR = 10_000


class Tier(NamedTuple):
    """One tier: a kernel reaches it at `factor` times the baseline's speed."""

    name: str
    grade: str
    factor: float

    @property
    def label(self) -> str:
        return f"{self.name} ({self.grade})" if self.grade else self.name


def parse(text: str) -> list[Tier]:
    """Tiers from lines such as "Good, B, 2", lowest first. Raises ValidationError with a sentence per wrong line."""
    errors, tiers = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                tiers.append(_tier(line))
            except ValueError as error:
                errors.append(f"Line {number}: {error}")
    tiers.sort(key=lambda tier: tier.factor)
    for what, said in (
        ("name", [t.name for t in tiers]),
        ("factor", [repr(t.factor).removesuffix(".0") for t in tiers]),
    ):
        if twice := sorted({one for one in said if said.count(one) > 1}):
            errors.append(f"Two tiers have the {what} {twice[0]}.")
    if not tiers and not errors:
        errors.append("A scale needs at least one tier.")
    if len(tiers) > MOST_TIERS:
        errors.append(f"At most {MOST_TIERS} tiers, not {len(tiers)}.")
    if errors:
        raise ValidationError(errors)
    return tiers


def _tier(line: str) -> Tier:
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != 3:
        raise ValueError("name, grade and factor, separated by commas, such as: Good, B, 2")
    name, grade, written = parts
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise ValueError(f"a name has 1 to {LONGEST_NAME} characters.")
    if len(grade) > LONGEST_GRADE or not grade.isprintable():
        raise ValueError(f"a grade has at most {LONGEST_GRADE} characters.")
    try:
        factor = float(written.removesuffix("x").removesuffix("\N{MULTIPLICATION SIGN}"))
    except ValueError:
        factor = math.nan
    if not 1 < factor <= LARGEST_FACTOR:
        raise ValueError(f"a factor is a number above 1, at most {LARGEST_FACTOR:,}, not '{written}'.")
    return Tier(name, grade, factor)


class TierScale(models.Model):
    """Names, grades and factors over the baseline, lowest first."""

    FIVE = (
        ("Good", "B", 2.0),
        ("Very Good", "B+", 3.0),
        ("Excellent", "A", 5.0),
        ("Outstanding", "A+", 13.0),
        ("Breakthrough", "A++", 64.0),
    )
    """The first scale of a new site."""

    name = models.CharField(max_length=60, unique=True)
    body = models.JSONField()
    """[[name, grade, factor], ...], lowest first."""

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.name

    @property
    def tiers(self) -> list[Tier]:
        return [Tier(*tier) for tier in self.body]

    @property
    def text(self) -> str:
        """The tiers as text, in the format of `parse`."""
        return "\n".join(f"{tier.name}, {tier.grade}, {repr(tier.factor).removesuffix('.0')}" for tier in self.tiers)
