"""Sessions: runs of one effort, with a goal and dated notes."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone


class Session(models.Model):
    """A session. Runs join it from the form, or later. Its page is the report."""

    title = models.CharField(max_length=200)
    objective = models.TextField(blank=True, max_length=5000)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.title

    def get_absolute_url(self) -> str:
        return reverse("session", args=[self.pk])


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
