"""Starts the runs that repeat daily: one a day for each schedule, however often and from wherever this is called.

The row of a schedule's day is the lock: a unique constraint lets one process create it, and its update is a
compare-and-set.
"""

from __future__ import annotations

import logging
from datetime import date

from django.db import transaction
from django.utils import timezone

from runs.models import Gpu, Run, Schedule, ScheduledDay

log = logging.getLogger(__name__)


def start_scheduled(today: date | None = None) -> list[Run]:
    """Starts what is due today. A day that has passed is not made up for. A clock that jumps back starts no day again, and
    one that jumps ahead ends nothing."""
    today = today or timezone.localdate()
    due = Schedule.objects.filter(ended_at=None, created_at__lte=timezone.now(), until__gte=today)
    due = due.exclude(days__in=ScheduledDay.objects.filter(day=today, is_over=True))
    started = []
    for schedule in due.select_related("run__gpu", "run__session", "user"):
        try:
            if run := _start(schedule, today):
                started.append(run)
        except Exception:  # of one schedule: the others go on
            log.exception("schedule %s cannot start", schedule.pk)
            why = {"is_over": True, "skipped": "Its run could not be created. The reason is in the site's log."}
            ScheduledDay.objects.update_or_create(schedule=schedule, day=today, defaults=why)
    return started


@transaction.atomic
def _start(schedule: Schedule, today: date) -> Run | None:
    """Its run of today; None if it cannot start now, or another process has started it."""
    day, _ = ScheduledDay.objects.get_or_create(schedule=schedule, day=today, defaults={"is_over": False})
    if why := why_not(schedule):
        ScheduledDay.objects.filter(pk=day.pk, is_over=False).update(skipped=why)
        return None
    if not ScheduledDay.objects.filter(pk=day.pk, is_over=False).update(is_over=True, skipped=""):
        return None
    first = schedule.run
    run = Run.objects.submit(
        first.spec,
        gpu=first.gpu,
        device_name="" if first.gpu else first.device_name,
        user=schedule.user,
        title=first.title,
        repeats=first,
        session=first.session,
    )
    ScheduledDay.objects.filter(pk=day.pk).update(started=run)
    return run


def why_not(schedule: Schedule) -> str:
    """Why it cannot start now, as a sentence; empty if it can. Runs do not pile up on a silent or busy device."""
    gpu = schedule.run.gpu
    if gpu is not None and not gpu.is_online:
        return f"{gpu.name} on {gpu.host} is offline."
    if gpu is None and not Gpu.objects.online().filter(name=schedule.run.device_name).exists():
        return f"Every {schedule.run.device_name} is offline."
    last = Run.objects.active().filter(repeats=schedule.run).order_by("pk").first()
    if last is None and schedule.run.is_active:
        last = schedule.run
    return f"Run {last.pk} with the same config is still {last.state}." if last else ""
