"""Whose code may run beside the baseline, in a process that is not isolated."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser, PermissionsMixin

RUN_TRUSTED = "run_trusted_code"
"""A permission on runs: measures code of one's own in the shared process."""


def must_isolate(user: PermissionsMixin | AnonymousUser | None, brings_code: bool) -> bool:
    """Whether a run must be isolated: it measures code that its user brings, who may not run trusted code.

    Kernels that lie on an agent's host were put there by somebody who may.
    """
    return brings_code and (user is None or not user.has_perm(f"runs.{RUN_TRUSTED}"))
