"""Shares: a secret link shows one run, the report of a session, or a status page, to visitors without an account."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, OuterRef, Q, Subquery
from django.urls import reverse
from django.utils import timezone

from runs.models.audit import Audit
from runs.models.run import Run
from runs.models.session import Session
from runs.models.status_page import StatusPage

TOKEN_BYTES = 24
TOKEN = re.compile(r"[A-Za-z0-9_-]{32}")


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


class ShareQuerySet(models.QuerySet["Share"]):
    def live(self) -> ShareQuerySet:
        """Links that open something."""
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), ended_at=None)

    def known(self, tokens: Iterable[str], run: int | None = None, session: int | None = None) -> ShareQuerySet:
        """The links with these tokens, live or not, to this run or this session's report. A session's link opens its
        runs, too."""
        mine = [token for token in tokens if TOKEN.fullmatch(token)]
        what = Q(run=run, session=session, page=None)
        if run is not None:
            what |= Q(session__runs=run)
        return self.filter(what, token__in=mine) if mine else self.none()

    def token_of(self, what: str) -> Subquery:
        """For rows of runs, sessions or pages: the token of their live link."""
        return Subquery(self.live().filter(**{what: OuterRef("pk")}).values("token")[:1])

    def make(self, user: Any, expires_at: datetime | None = None, **what: Any) -> Share:
        """The live link of something; a new one, if it has none."""
        if found := self.live().filter(**what).first():
            return found
        self.filter(**what, ended_at=None).update(ended_at=timezone.now())
        by = user if user.is_authenticated else None
        share, is_new = self.get_or_create(**what, ended_at=None, defaults={"user": by, "expires_at": expires_at})
        if is_new:
            Audit.objects.note(user, Audit.Kind.SHARED, f"a link to {share.what}", share.page_of)
        return share

    def end(self, user: Any) -> int:
        """Ends these links; each then says that it was ended."""
        by, open_ones = user if user.is_authenticated else None, list(self.filter(ended_at=None).select_related("page"))
        for share in open_ones:
            Audit.objects.note(user, Audit.Kind.REVOKED, f"the link to {share.what}", share.page_of)
        return self.filter(ended_at=None).update(ended_at=timezone.now(), ended_by=by)


class Share(models.Model):
    """One link; anyone with it may view until it ends."""

    token = models.CharField(max_length=32, unique=True, default=new_token, editable=False)
    run = models.ForeignKey(Run, models.CASCADE, null=True, blank=True, related_name="shares")
    session = models.ForeignKey(Session, models.CASCADE, null=True, blank=True, related_name="shares")
    page = models.ForeignKey(StatusPage, models.CASCADE, null=True, blank=True, related_name="shares")
    """One of the three."""
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    opens = models.PositiveIntegerField(default=0)
    """How often it was opened; polls of an open page do not count."""
    opened_at = models.DateTimeField(null=True, blank=True)

    objects = ShareQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=[what], condition=Q(ended_at=None), name=f"one_live_link_of_a_{what}")
            for what in ("run", "session", "page")
        ]

    def __str__(self) -> str:
        return f"link to {self.run or self.session or self.page}"

    @property
    def what(self) -> str:
        """What it opens, in words."""
        if self.page:
            return f"the status page “{self.page.title}”"
        return f"the report of session {self.session_id}" if self.session_id else f"run {self.run_id}"

    @property
    def is_live(self) -> bool:
        return self.ended_at is None and (self.expires_at is None or self.expires_at > timezone.now())

    @property
    def why_closed(self) -> str:
        """Why it opens nothing any more, as a sentence."""
        if self.ended_at:
            return f"This link was ended on {timezone.localdate(self.ended_at)}."
        return f"This link expired on {timezone.localdate(self.expires_at)}." if self.expires_at else ""

    def note_open(self) -> None:
        Share.objects.filter(pk=self.pk).update(opens=F("opens") + 1, opened_at=timezone.now())

    @property
    def page_of(self) -> str:
        """Where people with an account see what it opens."""
        if self.page_id:
            return reverse("edit_status", args=[self.page_id])
        return (
            reverse("session_report", args=[self.session_id]) if self.session_id else reverse("run", args=[self.run_id])
        )

    def get_absolute_url(self) -> str:
        return reverse("wall", args=[self.token]) if self.page_id else f"{self.page_of}?share={self.token}"
