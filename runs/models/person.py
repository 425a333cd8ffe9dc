"""People: the role of an account, and how its person wants pages."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models


class Role(models.TextChoices):
    """What a person may do. Each may do what those before it may."""

    VIEWER = "viewer", "viewer: reads"
    ENGINEER = "engineer", "engineer: launches, submits, imports, shares; cancels and withdraws own runs"
    ADMIN = "admin", "admin: also others' runs, people, the audit log"

    def includes(self, other: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(other)


class Theme(models.TextChoices):
    SYSTEM = "", "as the system"
    LIGHT = "light", "light"
    DARK = "dark", "dark"


class Person(models.Model):
    """One row of each account; made with it (runs/apps.py)."""

    Theme = Theme

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, related_name="person")
    role = models.CharField(max_length=10, choices=Role, default=Role.ENGINEER)
    time_zone = models.CharField(max_length=60, blank=True)
    """Empty: that of the site."""
    theme = models.CharField(max_length=6, choices=Theme, blank=True, default=Theme.SYSTEM)

    def __str__(self) -> str:
        return f"{self.user}, {self.role}"


def role_of(user: Any) -> Role | None:
    """None of a stranger, and of an account that is closed. A superuser is an admin."""
    if user is None or not user.is_authenticated or not user.is_active:
        return None
    if user.is_superuser:
        return Role.ADMIN
    person = getattr(user, "person", None)
    return Role(person.role) if person else Role.VIEWER


def may(user: Any, role: Role) -> bool:
    own = role_of(user)
    return own is not None and own.includes(role)


def owns(user: Any, thing: Any) -> bool:
    """Whether somebody may cancel or withdraw what has a `user`: its own, and of an admin everything."""
    return may(user, Role.ADMIN) or (may(user, Role.ENGINEER) and thing.user_id == user.pk)
