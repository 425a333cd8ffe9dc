"""Answers to writes of the API, by the key that their sender gave: a repeated request does nothing twice."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone


class Answered(models.Model):
    """One write with an Idempotency-Key; kept for a day."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    digest = models.CharField(max_length=64)
    """SHA-256 of method, address and body."""
    status = models.PositiveSmallIntegerField(default=0)
    body = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="one_answer_per_key")]

    def __str__(self) -> str:
        return f"{self.key}: {self.status}"
