"""Status pages: what somebody puts on a wall. Its link is a share (runs/models/share.py)."""

from __future__ import annotations

from typing import NamedTuple

from django.conf import settings
from django.db import models
from django.utils import timezone

EVERY = "*"
"""Chosen instead of rows: all that there are, also later ones."""
KINDS = ("targets", "kernels", "workloads", "sessions", "devices")
"""The parts that a page may have, in the order of a new page."""


class Part(NamedTuple):
    """One part of a page: what kind of thing, and which of them."""

    kind: str
    chosen: tuple[int, ...] = ()
    every: bool = False

    def has(self, pk: int) -> bool:
        return self.every or pk in self.chosen


class StatusPage(models.Model):
    """A page of chosen things in a chosen order."""

    title = models.CharField(max_length=100)
    sentence = models.CharField(max_length=300, blank=True)
    """Its author's own."""
    body = models.JSONField(default=list)
    """Its parts in order: [[kind, [row ids] or "*"], ...]."""
    names = models.BooleanField(default=False)
    """Whether it names people."""
    sources = models.BooleanField(default=False)
    """Whether it shows sources of its kernels."""
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.title

    @property
    def parts(self) -> list[Part]:
        return [Part(kind, tuple(() if rows == EVERY else rows), rows == EVERY) for kind, rows in self.body]

    def part(self, kind: str) -> Part | None:
        return next((part for part in self.parts if part.kind == kind), None)
