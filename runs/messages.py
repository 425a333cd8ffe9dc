"""Messages from the site to workers and agents, through the broker. Models may use it: it does not import them."""

from __future__ import annotations

import logging
import time

from celery import Celery
from django.conf import settings
from django.db import transaction
from redis.exceptions import RedisError

from runs.broker import BrokerKeys

log = logging.getLogger(__name__)
NOT_AGAIN_S = 5.0
"""A broker that did not answer is not asked again so soon: pages must not wait for it."""
_failed_at = -NOT_AGAIN_S


def celery_app() -> Celery:
    from benchsite.celery import app

    return app


def send(task: str, *args: object, **options: object) -> bool:
    """Publishes a task. False if the broker does not accept it: the row stays, and the reaper retries."""
    try:
        celery_app().send_task(task, args=args, retry=False, **options)
        return True
    except Exception as error:  # kombu raises its transport's errors; none may reach a form or a row
        log.warning("the broker did not take %s: %s", task, error)
        return False


def ask_dispatch() -> None:
    """Wakes the dispatcher after this transaction commits."""
    transaction.on_commit(lambda: send("dispatch"))


def tell_cancel(run: int, attempt: int) -> None:
    """Tells the agent that holds this attempt to stop."""
    try:
        BrokerKeys(settings.REDIS_URL).ask_cancel(run, attempt)
    except RedisError as error:
        log.warning("the broker did not take the cancel of run %s: %s", run, error)


def agent_pulses(uuid: str) -> bool:
    """Whether a device's agent reaches the broker now. If so, and the site has not heard it, the recorder is at fault."""
    global _failed_at
    if time.monotonic() - _failed_at < NOT_AGAIN_S:
        return False
    try:
        return BrokerKeys(settings.REDIS_URL).pulse_of(f"agent:{uuid}") is not None
    except RedisError:
        _failed_at = time.monotonic()
        return False
