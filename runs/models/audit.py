"""The audit log: who did what, and when. Rows are only added."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone


class AuditManager(models.Manager["Audit"]):
    def note(self, user: Any, kind: str, what: str, link: str = "") -> None:
        """user: None for what the site does by itself."""
        by = user if user is not None and user.is_authenticated else None
        name = by.get_username() if by else ""
        self.create(user=by, name=name, kind=kind, what=what[:300], link=link)


class Audit(models.Model):
    """One line of the log."""

    class Kind(models.TextChoices):
        LAUNCHED = "launched"
        CANCELLED = "cancelled"
        WITHDRAWN = "withdrawn"
        RESTORED = "restored"
        IMPORTED = "imported"
        SHARED = "shared"
        REVOKED = "revoked"
        TOKEN = "token made"
        ROLE = "role changed"
        ADDED = "person added"
        DISABLED = "person disabled"
        ENABLED = "person enabled"
        RESET = "password reset"

    at = models.DateTimeField(default=timezone.now)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    name = models.CharField(max_length=150, blank=True)
    """Of the person, as it was: it stays when the account goes. Empty: the site."""
    kind = models.CharField(max_length=20, choices=Kind)
    what = models.CharField(max_length=300)
    link = models.CharField(max_length=200, blank=True)

    objects = AuditManager()

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["kind", "-id"], name="audit_of_a_kind")]

    def __str__(self) -> str:
        return f"{self.name or 'the site'}: {self.kind} {self.what}"
