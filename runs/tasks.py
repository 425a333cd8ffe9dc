"""The Celery tasks of the site: one call each."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from celery import Task, shared_task
from celery.signals import task_postrun, task_prerun
from django.conf import settings
from django.core.management import call_command
from django.db import close_old_connections
from redis.exceptions import RedisError

from benchsite.queues import WHEN_IDLE
from runs import confirming
from runs.broker import BrokerKeys
from runs.messages import send
from runs.pipeline import delivering, dispatcher, keeping, reaper, recorder

SHOW_EVERY_S = 1.0
_shown_at = 0.0


@shared_task(name="record")
def record(events: list[dict[str, Any]]) -> None:
    recorder.record(events)


@shared_task(name="hello")
def hello(said: dict[str, Any]) -> None:
    recorder.hello(said)


@shared_task(name="dispatch")
def dispatch() -> None:
    dispatcher.dispatch()


@shared_task(name="reap")
def reap() -> None:
    pulse("beat")
    reaper.reap()


@shared_task(name="pulse")
def pulse(name: str) -> None:
    """Says that a part works: for the watchdog."""
    with suppress(RedisError):
        BrokerKeys(settings.REDIS_URL).pulse(name)


@task_prerun.connect
def check_connection(**_: Any) -> None:
    """A connection to the database lives longer than a task: the database may have restarted since."""
    close_old_connections()


@task_postrun.connect
def show_life(task: Task, **_: Any) -> None:
    """Every task that ends is a sign of life: a part with a long queue is not taken for one that hangs."""
    global _shown_at
    if task.name != "pulse" and time.monotonic() - _shown_at > SHOW_EVERY_S:
        _shown_at = time.monotonic()
        pulse("recorder" if task.name in ("record", "hello") else "worker")


@shared_task(name="draw_charts")
def draw_charts(run: int, place: int = 0) -> None:
    """Draws a chart of a run, and asks for the next one: what cannot wait comes between."""
    from runs.charts.run_stored import draw

    if draw(run, place):
        send("draw_charts", run, place + 1, priority=WHEN_IDLE)


@shared_task(name="confirm_leaders")
def confirm_leaders() -> None:
    """Queues runs that confirm what leads, on devices with nothing to do."""
    confirming.confirm_leaders()


@shared_task(name="deliver")
def deliver() -> None:
    """Sends the notices that are due."""
    delivering.deliver()


@shared_task(name="purge_logins")
def purge_logins() -> None:
    """Deletes the rows of logins that have expired."""
    call_command("clearsessions")


@shared_task(name="prune")
def prune() -> None:
    """Deletes what is kept no longer."""
    keeping.prune()
    keeping.refresh_statistics()
