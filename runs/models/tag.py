"""Tags: words that people put on runs, to find them."""

from __future__ import annotations

import re

from django.core.exceptions import ValidationError
from django.db import models

LONGEST = 40
NAME = re.compile(rf"[a-z0-9][a-z0-9._+-]{{0,{LONGEST - 1}}}")


def name_of(text: str) -> str:
    """A tag as it is stored. Raises ValidationError."""
    name = "-".join(text.lower().split())
    if not NAME.fullmatch(name):
        raise ValidationError(
            f"Write a tag of letters and digits, with . _ + - between them: at most {LONGEST} characters."
        )
    return name


class Tag(models.Model):
    """One word. It goes with the last run that has it."""

    name = models.CharField(max_length=LONGEST, unique=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
