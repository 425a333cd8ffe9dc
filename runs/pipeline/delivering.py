"""Sends notices: signed to webhooks, by mail to people. What fails is tried again, six times within eleven hours."""

from __future__ import annotations

import hmac
import http.client
import json
import logging
import smtplib
import threading
import time
from collections.abc import Callable
from hashlib import sha256

from django.conf import settings
from django.core.mail import EmailMessage
from django.utils import timezone

from runs import outgoing
from runs.models import Delivery, Webhook

AT_ONCE = 16
LIMIT_S = 6.0
"""For all attempts of one tick: the worker has other work."""
GONE = 410
"""An address that answers so wants nothing more."""
NO_ANSWER = f"no answer within {LIMIT_S:g} s"
log = logging.getLogger(__name__)


def deliver() -> int:
    """Makes the attempts that are due, at once; returns their number."""
    now = timezone.now()
    due = Delivery.objects.filter(state=Delivery.State.WAITING, next_at__lte=now).order_by("next_at", "pk")
    due = due.select_related("notice", "webhook__user", "user")[:AT_ONCE]
    mine = [one for one in due if one.claim(now)]
    said: dict[int, tuple[bool, str]] = {}
    threads = [threading.Thread(target=_attempt, args=(_sending(one), said, one.pk), daemon=True) for one in mine]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LIMIT_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    for one in mine:
        delivered, answer = said.get(one.pk, (False, NO_ANSWER))
        one.note(delivered, answer)
        if one.webhook and answer == str(GONE):
            Webhook.objects.filter(pk=one.webhook.pk).update(stopped="it answered 410 Gone")
            one.webhook.deliveries.filter(state=Delivery.State.WAITING).update(state=Delivery.State.FAILED)
    return len(mine)


def _attempt(send: Callable[[], tuple[bool, str]], said: dict[int, tuple[bool, str]], pk: int) -> None:
    """In a thread of its own, without the database."""
    try:
        said[pk] = send()
    except outgoing.Refused as error:
        said[pk] = False, str(error)
    except (OSError, http.client.HTTPException, smtplib.SMTPException) as error:
        said[pk] = False, f"{type(error).__name__}: {error}"
    except Exception:
        log.exception("delivery %s failed", pk)
        said[pk] = False, "the site could not send it; the reason is in the site's log"


def _sending(one: Delivery) -> Callable[[], tuple[bool, str]]:
    """How it is sent: all that it needs is read here."""
    person = one.webhook.user if one.webhook else one.user
    if person is None or not person.is_active:
        return lambda: (False, "its account is disabled")
    if one.webhook:
        url, body = one.webhook.url, json.dumps(one.notice.body(), allow_nan=False).encode()
        headers = signed(one.webhook.secret, body) | {
            "Content-Type": "application/json", "User-Agent": "Benchsite", "Benchsite-Event": one.notice.event,
            "Benchsite-Delivery": str(one.pk),
        }  # fmt: skip
        return lambda: _answered(outgoing.post(url, body, headers))
    address = person.email
    subject = " ".join(one.notice.sentence.split())[:150]
    text = f"{one.notice.sentence}\n\n{one.notice.url}\n\nChange your notices: {settings.SITE_URL}/notices/\n"
    mail = EmailMessage(f"[Benchsite] {subject}", text, to=[address], headers={"Auto-Submitted": "auto-generated"})
    return lambda: (bool(mail.send()), "sent") if address else (False, "this person has no address")


def _answered(status: int) -> tuple[bool, str]:
    return 200 <= status < 300, str(status)


def signed(secret: str, body: bytes) -> dict[str, str]:
    """Headers that prove who sent a body, and when."""
    timestamp = str(int(time.time()))
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, sha256).hexdigest()
    return {"Benchsite-Timestamp": timestamp, "Benchsite-Signature": f"v1={digest}"}
