"""The Celery tasks of the site: one call each."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from celery import shared_task
from django.conf import settings
from django.db import close_old_connections
from redis.exceptions import RedisError

from runs.broker import BrokerKeys
from runs.pipeline import dispatcher, reaper, recorder


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
    close_old_connections()
    pulse("beat")
    reaper.reap()


@shared_task(name="pulse")
def pulse(name: str) -> None:
    """Says that this part works: for the watchdog."""
    with suppress(RedisError):
        BrokerKeys(settings.REDIS_URL).pulse(name)


@shared_task(name="draw_charts")
def draw_charts(run: int) -> None:
    from runs.charts.run_charts import draw

    draw(run)
