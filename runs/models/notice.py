"""Notices: what happened that people asked to be told of, to whom it goes, and what became of it."""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.db import models, transaction
from django.db.models import Q
from django.utils import timezone

from runs.models.run import Run

SECRET_PREFIX = "benchwh_"
MOST_WEBHOOKS = 10
"""Of one person."""
BACKOFF = [timedelta(seconds=s) for s in (30, 120, 480, 1920, 7200, 28800)]
"""Waits between attempts; after the last one the delivery has failed."""


class Kind(models.TextChoices):
    """What people may ask to be told of."""

    RUN = "run", "a run of mine ended"
    ANY_RUN = "any_run", "any run ended"
    RECORD = "record", "a record was broken"
    REGRESSION = "regression", "a kernel got slower"
    TARGET = "target", "a target was reached"


class Event(models.TextChoices):
    """What happened, as programs read it."""

    RUN = "run.ended"
    RECORD = "record.broken"
    REGRESSION = "regression.found"
    TARGET = "target.reached"
    TEST = "test"


class Webhook(models.Model):
    """An address that gets notices of a person, signed with its secret. The secret itself is not stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="webhooks")
    url = models.CharField(max_length=500)
    kinds = models.JSONField(default=list)
    """Values of Kind."""
    salt = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    stopped = models.CharField(max_length=200, blank=True)
    """Why nothing is sent any more; empty: it is sent to."""

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.url

    @classmethod
    def make(cls, user: Any, url: str, kinds: list[str]) -> tuple[Webhook, str]:
        """(the row, its secret)."""
        row = cls.objects.create(user=user, url=url, kinds=kinds, salt=secrets.token_hex(32))
        return row, row.secret

    @property
    def secret(self) -> str:
        """Made from the site's secret key: who reads the database only cannot sign."""
        made = hmac.new(settings.SECRET_KEY.encode(), f"webhook:{self.pk}:{self.salt}".encode(), sha256).digest()
        return SECRET_PREFIX + urlsafe_b64encode(made).decode().rstrip("=")

    @property
    def asked_for(self) -> str:
        return ", ".join(str(Kind(kind).label) for kind in self.kinds if kind in Kind.values)


class MailChoice(models.Model):
    """Of what a person wants mail."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, related_name="mail_choice")
    kinds = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"{self.user}: {', '.join(self.kinds) or 'nothing'}"


class NoticeManager(models.Manager["Notice"]):
    @transaction.atomic
    def give(self, event: Event, key: str, sentence: str, path: str, run: Run | None, facts: dict[str, Any]) -> Notice:
        """The notice of something that happened: once for each key, to all who asked."""
        named = {"sentence": sentence[:500], "path": path, "run": run, "facts": facts}
        notice, new = self.get_or_create(event=event, key=key, defaults=named)
        if new:
            notice.address()
        return notice


class Notice(models.Model):
    """One thing that happened."""

    event = models.CharField(max_length=20, choices=Event.choices)
    key = models.CharField(max_length=200)
    """What tells it from others of its event: nothing is told twice."""
    sentence = models.CharField(max_length=500)
    path = models.CharField(max_length=300)
    """Its page."""
    run = models.ForeignKey(Run, models.CASCADE, null=True, related_name="+")
    facts = models.JSONField(default=dict)
    at = models.DateTimeField(default=timezone.now, db_index=True)

    objects = NoticeManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["event", "key"], name="one_notice_of_a_thing")]

    def __str__(self) -> str:
        return self.sentence

    @property
    def url(self) -> str:
        return f"{settings.SITE_URL}{self.path}"

    def body(self) -> dict[str, Any]:
        """What a webhook gets."""
        said = {
            "event": self.event,
            "id": self.pk,
            "at": self.at.isoformat(),
            "sentence": self.sentence,
            "url": self.url,
        }
        return said | {"run": self.run_id, "data": self.facts}

    def address(self) -> None:
        """Makes a delivery for each webhook and each person that asked for it."""
        hooks = Webhook.objects.filter(stopped="", user__is_active=True)
        mails = MailChoice.objects.filter(user__is_active=True).exclude(user__email="")
        to = [Delivery(notice=self, webhook=one) for one in hooks if self.is_for(one)]
        to += [Delivery(notice=self, user=one.user) for one in mails.select_related("user") if self.is_for(one)]
        Delivery.objects.bulk_create(to)

    def is_for(self, one: Webhook | MailChoice) -> bool:
        wanted = {
            Event.RUN.value: Kind.ANY_RUN,
            Event.RECORD.value: Kind.RECORD,
            Event.REGRESSION.value: Kind.REGRESSION,
        }
        if wanted.get(self.event, Kind.TARGET) in one.kinds:
            return True
        own = self.run is not None and self.run.user_id == one.user_id
        return self.event == Event.RUN and Kind.RUN in one.kinds and own


class Delivery(models.Model):
    """One notice on its way to one webhook, or by mail to one person."""

    class State(models.TextChoices):
        WAITING = "waiting"
        DELIVERED = "delivered"
        FAILED = "failed"

    notice = models.ForeignKey(Notice, models.CASCADE, related_name="deliveries")
    webhook = models.ForeignKey(Webhook, models.CASCADE, null=True, related_name="deliveries")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, null=True, related_name="+")
    """By mail."""
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    attempts = models.IntegerField(default=0)
    next_at = models.DateTimeField(default=timezone.now)
    answer = models.CharField(max_length=200, blank=True)
    """Of the last attempt: the status, or the error."""
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "deliveries"
        indexes = [models.Index(fields=["next_at"], condition=Q(state="waiting"), name="deliveries_that_wait")]

    def __str__(self) -> str:
        return f"{self.notice_id} to {self.to}: {self.state}"

    @property
    def to(self) -> str:
        return self.webhook.url if self.webhook else f"mail to {self.user.email if self.user else 'nobody'}"

    def claim(self, now: datetime) -> bool:
        """Takes this attempt, once: no other process makes it. Where this process ends meanwhile, the next one follows."""
        wait = BACKOFF[min(self.attempts, len(BACKOFF) - 1)]
        mine = Delivery.objects.filter(pk=self.pk, state=self.State.WAITING, attempts=self.attempts)
        taken = bool(mine.update(attempts=self.attempts + 1, next_at=now + wait))
        self.attempts += taken
        return taken

    def note(self, delivered: bool, answer: str) -> None:
        """What came of the attempt."""
        self.answer = answer[:200]
        if delivered or self.attempts > len(BACKOFF):
            self.state = self.State.DELIVERED if delivered else self.State.FAILED
            self.ended_at = timezone.now()
        self.save(update_fields=["answer", "state", "ended_at"])
