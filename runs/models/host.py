"""Hosts with a credential of their own for the broker. Only a hash of the password is stored."""

from __future__ import annotations

import hashlib
import secrets

from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

NAME = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,60}\Z",
    "Give the host a name of letters, digits, '.', '_' and '-': at most 61 characters.",
)
UUID = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z",
    "Give the id of each device as `python -m kernels env` prints it on the host.",
)


class HostManager(models.Manager["Host"]):
    def make(self, name: str, devices: list[str]) -> tuple[Host, str]:
        """(the row, the password). The password is nowhere stored. A host that exists gets a new one, and these devices.

        Raises ValidationError.
        """
        NAME(name)
        for uuid in devices:
            UUID(uuid)
        password = secrets.token_urlsafe(32)
        digest = hashlib.sha256(password.encode()).hexdigest()
        fields = {"devices": devices, "digest": digest, "created_at": timezone.now(), "revoked_at": None}
        row, _ = self.update_or_create(name=name, defaults=fields)
        return row, password


class Host(models.Model):
    """A GPU host that the broker knows by a user of its own."""

    name = models.CharField(max_length=61, unique=True)
    devices = models.JSONField(default=list)
    """Ids of its devices: its user reaches the queues of these, and no others."""
    digest = models.CharField(max_length=64)
    """SHA-256 of its password, in hexadecimal: what the broker compares."""
    created_at = models.DateTimeField(default=timezone.now)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = HostManager()

    def __str__(self) -> str:
        return self.name

    @property
    def user(self) -> str:
        """Its name at the broker."""
        return f"host-{self.name}"

    def revoke(self) -> None:
        Host.objects.filter(pk=self.pk, revoked_at=None).update(revoked_at=timezone.now())
