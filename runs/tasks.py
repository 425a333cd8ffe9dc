"""The Celery tasks of the site: one call each."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.db import close_old_connections

from runs.pipeline import dispatcher, reaper, recorder


@shared_task(name="record")
def record(events: list[dict[str, Any]]) -> None:
    recorder.record(events)


@shared_task(name="hello", expires=15)
def hello(said: dict[str, Any]) -> None:
    recorder.hello(said)


@shared_task(name="dispatch")
def dispatch() -> None:
    dispatcher.dispatch()


@shared_task(name="reap")
def reap() -> None:
    close_old_connections()
    reaper.reap()


@shared_task(name="draw_charts")
def draw_charts(run: int) -> None:
    from runs.charts.run_charts import draw

    draw(run)
