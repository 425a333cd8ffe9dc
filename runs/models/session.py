"""Sessions: runs of one effort, with a goal, a plan and dated notes."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from runs.models.plan import Blocker, Option, Phase, Wanted

LONGEST_TEXT = 20_000


class Session(models.Model):
    """A session. Runs join it from the form, or later. Texts are Markdown."""

    title = models.CharField(max_length=200)
    objective = models.TextField(blank=True, max_length=5000)
    phases = models.JSONField(default=list, blank=True)
    """runs/models/plan.py has the rows of this column and of the next three."""
    criteria = models.JSONField(default=list, blank=True)
    blockers = models.JSONField(default=list, blank=True)
    options = models.JSONField(default=list, blank=True)
    decision = models.TextField(blank=True, max_length=LONGEST_TEXT)
    next_actions = models.TextField(blank=True, max_length=LONGEST_TEXT)
    learnings = models.TextField(blank=True, max_length=LONGEST_TEXT)
    deliverables = models.TextField(blank=True, max_length=LONGEST_TEXT)
    sample = models.CharField(max_length=100, blank=True, db_index=True)
    """File of a session that came with the site."""
    source = models.CharField(max_length=300, blank=True)
    """The document that a sample was typed from."""
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.title

    def get_absolute_url(self) -> str:
        return reverse("session", args=[self.pk])

    @property
    def plan(self) -> list[Phase]:
        """Its phases, by number."""
        return sorted((Phase.of(row) for row in self.phases), key=lambda phase: phase.number)

    @property
    def wanted(self) -> list[Wanted]:
        return [Wanted.of(row) for row in self.criteria]

    @property
    def hindrances(self) -> list[Blocker]:
        return [Blocker.of(row) for row in self.blockers]

    @property
    def choices(self) -> list[Option]:
        return [Option.of(row) for row in self.options]


class Note(models.Model):
    """A note, placed between runs by its time. A note with a phase starts that phase."""

    session = models.ForeignKey(Session, models.CASCADE, related_name="notes")
    phase = models.CharField(max_length=100, blank=True)
    text = models.TextField(blank=True, max_length=5000)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["created_at", "id"]

    def __str__(self) -> str:
        return self.phase or self.text[:60]
