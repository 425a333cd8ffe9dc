"""Claims: results that somebody reports, imported from a file. No table of measurements refers to them or is referred to,
so they count in no tier, no best, no leaderboard and no verdict."""

from __future__ import annotations

from functools import cached_property

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from kernels.foreign.claimed import Claimed
from runs.models.session import Session


class Import(models.Model):
    """One file of claims."""

    name = models.CharField(max_length=200)
    """Of the file, or of the document that it was typed from."""
    format = models.CharField(max_length=40)
    about = models.CharField(max_length=500, blank=True)
    """What holds for every row, where a row says nothing else."""
    sample = models.CharField(max_length=100, blank=True, db_index=True)
    """File of a sample that came with the site."""
    source = models.CharField(max_length=300, blank=True)
    """Which tables of a document it was typed from."""
    session = models.ForeignKey(Session, models.SET_NULL, null=True, blank=True, related_name="imports")
    """Whose report quotes these claims."""
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    rows = models.IntegerField(default=0)
    """Rows of the file, those that gave no claim among them."""
    known = models.IntegerField(default=0)
    """Rows whose claims were all imported before."""
    refused = models.IntegerField(default=0)
    refusals = models.JSONField(default=list)
    """[where, why] of the first of what was refused: rows, and single kernels of rows."""

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("import", args=[self.pk])

    @property
    def taken(self) -> int:
        """Rows that gave new claims."""
        return self.rows - self.known - self.refused


class Claim(models.Model):
    """One result as it was reported."""

    imported = models.ForeignKey(Import, models.CASCADE, related_name="claims")
    digest = models.CharField(max_length=64, unique=True)
    """Of what it claims: the same claim is stored once."""
    body = models.JSONField()
    """A kernels/foreign/claimed.py Claimed."""

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.claimed.kernel} on {self.claimed.workload.label}"

    @cached_property
    def claimed(self) -> Claimed:
        return Claimed.model_validate(self.body)
