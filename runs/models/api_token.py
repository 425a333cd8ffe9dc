"""Tokens of the API: a program acts as a person, with the rights to read, or to read and write."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from runs.models.audit import Audit

if TYPE_CHECKING:
    from django.contrib.auth.models import User

PREFIX = "bench_"
SHOWN = 6
"""Signs of the secret part that stay readable, to tell tokens apart."""
LONGEST_DAYS = 366
NOTE_USE_EVERY = timedelta(minutes=1)


def digest_of(text: str) -> str:
    """SHA-256: enough for 256 random bits, and quick."""
    return hashlib.sha256(text.encode()).hexdigest()


class ApiTokenManager(models.Manager["ApiToken"]):
    def make(self, user: User, name: str, *, writes: bool, days: int) -> tuple[ApiToken, str]:
        """(the row, the token). The token is nowhere stored: it can be shown now only."""
        text = PREFIX + secrets.token_urlsafe(32)
        expires = timezone.now() + timedelta(days=min(days, LONGEST_DAYS))
        start = text[: len(PREFIX) + SHOWN]
        row = self.create(user=user, name=name, start=start, digest=digest_of(text), writes=writes, expires_at=expires)
        rights = "read and write" if writes else "read"
        Audit.objects.note(user, Audit.Kind.TOKEN, f"{row.start}… for {name}: {rights}")
        return row, text

    def used(self, text: str) -> ApiToken | None:
        """The valid token with this text, its use noted; None if there is none."""
        now = timezone.now()
        valid = self.filter(revoked_at=None, expires_at__gt=now, user__is_active=True)
        found = valid.select_related("user__person").filter(digest=digest_of(text)).first()
        if found and (found.last_used_at is None or found.last_used_at < now - NOTE_USE_EVERY):
            self.filter(pk=found.pk).update(last_used_at=now)
        return found


class ApiToken(models.Model):
    """One token of a person. Only its hash is stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    start = models.CharField(max_length=20)
    """Its first signs."""
    digest = models.CharField(max_length=64, unique=True)
    writes = models.BooleanField(default=False)
    """Whether it may submit and cancel, too."""
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenManager()

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["user", "-id"], condition=Q(revoked_at=None), name="tokens_of_a_person")]

    def __str__(self) -> str:
        return f"{self.start}... of {self.user}"

    @property
    def state(self) -> str:
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires_at <= timezone.now() else "valid"

    def revoke(self, by: Any = None) -> None:
        """by: who; its own person, if nobody else."""
        if ApiToken.objects.filter(pk=self.pk, revoked_at=None).update(revoked_at=timezone.now()):
            Audit.objects.note(by or self.user, Audit.Kind.REVOKED, f"token {self.start}… of {self.user}")
