"""Tier scales: named tiers with grades. A scale never changes: to edit it makes its next version."""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING, NamedTuple

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, transaction
from django.utils import timezone

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MOST_TIERS, LONGEST_NAME, LONGEST_GRADE = 20, 40, 6
LARGEST_FACTOR = 10_000


class Tier(NamedTuple):
    """One tier: a kernel reaches it at `factor` times the baseline's speed. As written in a scale of shares, `factor` is the
    share."""

    name: str
    grade: str
    factor: float

    @property
    def label(self) -> str:
        return f"{self.name} ({self.grade})" if self.grade else self.name


def parse(text: str, shares: bool = False) -> list[Tier]:
    """Tiers from lines such as "Good, B, 2", lowest first. Raises ValidationError with a sentence per wrong line.

    shares: the numbers are shares of the way to the speed of light, as in "Half, B, 0.5".
    """
    errors, tiers = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                tiers.append(_tier(line, shares))
            except ValueError as error:
                errors.append(f"Line {number}: {error}")
    tiers.sort(key=lambda tier: tier.factor)
    for what, said in (
        ("name", [t.name for t in tiers]),
        ("share" if shares else "factor", [repr(t.factor).removesuffix(".0") for t in tiers]),
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


def _tier(line: str, shares: bool) -> Tier:
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != 3:
        example = "name, grade and share, separated by commas, such as: Half, B, 0.5"
        raise ValueError(example if shares else "name, grade and factor, separated by commas, such as: Good, B, 2")
    name, grade, written = parts
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise ValueError(f"a name has 1 to {LONGEST_NAME} characters.")
    if len(grade) > LONGEST_GRADE or not grade.isprintable():
        raise ValueError(f"a grade has at most {LONGEST_GRADE} characters.")
    try:
        factor = float(written.removesuffix("x").removesuffix("\N{MULTIPLICATION SIGN}"))
    except ValueError:
        factor = math.nan
    if shares and not 0 < factor < 1:
        raise ValueError(f"a share is a number between 0 and 1, not '{written}'.")
    if not shares and not 1 < factor <= LARGEST_FACTOR:
        raise ValueError(f"a factor is a number above 1, at most {LARGEST_FACTOR:,}, not '{written}'.")
    return Tier(name, grade, factor)


class TierScaleQuerySet(models.QuerySet["TierScale"]):
    def current(self) -> TierScaleQuerySet:
        """The newest version of each scale."""
        return self.filter(replaced_by=None)


class TierScale(models.Model):
    """One version of a scale: names, grades and numbers, lowest first."""

    class Kind(models.TextChoices):
        FACTOR = "factor", "times the baseline's speed"
        LIGHT = "light", "share of the way from the baseline to the speed of light"

    FIVE = (
        ("Good", "B", 2.0),
        ("Very Good", "B+", 3.0),
        ("Excellent", "A", 5.0),
        ("Outstanding", "A+", 13.0),
        ("Breakthrough", "A++", 64.0),
    )
    """A scale of factors of a new site."""
    WAY = (
        ("A tenth", "D", 0.1),
        ("A quarter", "C", 0.25),
        ("Half", "B", 0.5),
        ("Three quarters", "A", 0.75),
        ("Nine tenths", "A+", 0.9),
    )
    """The first scale of a new site. Each device allows all of its tiers."""

    name = models.CharField(max_length=60)
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.FACTOR)
    """What the numbers are. Of the way: 0.5 is the factor whose square would be the speed of light."""
    body = models.JSONField()
    """[[name, grade, number], ...], lowest first."""
    version = models.IntegerField(default=1)
    replaced_by = models.OneToOneField("self", models.CASCADE, null=True, blank=True, related_name="replaces")
    """The next version; the newest has none."""
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")

    objects = TierScaleQuerySet.as_manager()

    class Meta:
        ordering = [models.Case(models.When(kind="light", then=0), default=1), "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["name"],
                condition=models.Q(replaced_by=None),
                name="one_current_scale_of_a_name",
                violation_error_message="There is a scale with this name already.",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"

    @property
    def tiers(self) -> list[Tier]:
        """As they are written: of the way to the speed of light, `factor` is the share."""
        return [Tier(*tier) for tier in self.body]

    def tiers_up_to(self, most: float | None) -> list[Tier]:
        """The tiers as factors over a baseline. most: the factor of the speed of light; unknown, a share gives no tier."""
        if self.kind == self.Kind.FACTOR:
            return self.tiers
        if most is None or most <= 1:
            return []
        return [tier._replace(factor=most**tier.factor) for tier in self.tiers]

    @property
    def text(self) -> str:
        """The tiers as text, in the format of `parse`."""
        return "\n".join(f"{tier.name}, {tier.grade}, {repr(tier.factor).removesuffix('.0')}" for tier in self.tiers)

    @transaction.atomic
    def next_version(self, name: str, body: list[list[object]], user: User | None) -> TierScale:
        """Stores the next version and returns it; itself, if nothing differs. Its verdicts stay those of this one.

        IntegrityError: this version has been replaced meanwhile, or another scale has the name.
        """
        if (name, body) == (self.name, [list(tier) for tier in self.tiers]):
            return self
        following = TierScale(kind=self.kind, body=body, version=self.version + 1, created_by=user)
        following.name = secrets.token_hex(16)  # with its own, there would be two current ones for a moment
        following.save()
        if not TierScale.objects.current().filter(pk=self.pk).update(replaced_by=following):
            raise IntegrityError(f"{self} has been replaced")
        following.name = name
        following.save(update_fields=["name"])
        return following

    @property
    def newest(self) -> TierScale:
        """The current version of this scale."""
        return self.replaced_by.newest if self.replaced_by else self

    @property
    def older(self) -> list[TierScale]:
        """The versions before it, newest first."""
        found, last = [], self
        while (before := TierScale.objects.filter(replaced_by=last).first()) is not None:
            found.append(before)
            last = before
        return found
