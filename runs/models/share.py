"""Shares: a secret link shows one run, the report of a session, or the status page, to visitors without an account."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse

from runs.models.run import Run
from runs.models.session import Session

TOKEN_BYTES = 24
TOKEN = re.compile(r"[A-Za-z0-9_-]{32}")


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


class ShareManager(models.Manager["Share"]):
    def opens(self, tokens: Iterable[str], run: int | None = None, session: int | None = None) -> bool:
        """Whether one of these tokens opens this run, this session's report, or (without either) the status page. A
        session's link opens its runs, too."""
        known = [token for token in tokens if TOKEN.fullmatch(token)]
        if not known:
            return False
        what = Q(run=run, session=session)
        if run is not None:
            what |= Q(session__runs=run)
        return self.filter(what, token__in=known).exists()


class Share(models.Model):
    """One link; anyone with it may view. Delete it to end it."""

    token = models.CharField(max_length=32, unique=True, default=new_token, editable=False)
    run = models.OneToOneField(Run, models.CASCADE, null=True, blank=True, related_name="share")
    session = models.OneToOneField(Session, models.CASCADE, null=True, blank=True, related_name="share")
    """Neither: the status page."""
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ShareManager()

    def __str__(self) -> str:
        return f"link to {self.run or self.session or 'the status page'}"

    def get_absolute_url(self) -> str:
        if self.session_id:
            page = reverse("session_report", args=[self.session_id])
        else:
            page = reverse("run", args=[self.run_id]) if self.run_id else reverse("status")
        return f"{page}?share={self.token}"
