"""The reaper: every 15 s it resends lost messages and resumes runs that their agent no longer holds.

It acts only if the record queue is empty: its view is then complete.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone
from redis.exceptions import RedisError

from benchsite.queues import RECORD_QUEUE
from runs.broker import BrokerKeys
from runs.hosts import keep_told
from runs.messages import tell_cancel
from runs.models import Gpu, Run
from runs.models.run import NO_ANSWER, RunQuerySet, State
from runs.pipeline.contended import repeat_contended
from runs.pipeline.dispatcher import dispatch, execute
from runs.pipeline.schedules import start_scheduled
from runs.pipeline.watch import watch

log = logging.getLogger(__name__)
SETTLE = timedelta(seconds=6)
"""Ignore hellos within this time of the last event or dispatch: they may predate it. Longer than the interval of
hellos."""
MAX_WITHOUT_PROGRESS = 3


def reap() -> None:
    keep_told()
    try:
        if BrokerKeys(settings.REDIS_URL).queue_length(RECORD_QUEUE):
            return
    except RedisError as error:
        log.warning("the reaper waits for the broker: %s", error)
        return
    for run in Run.objects.sent().filter(cancel_requested=True).select_related("gpu"):
        if run.gpu and run.gpu.is_online:
            tell_cancel(run.pk, run.attempt)
        else:  # it fell silent after it was asked; it hears that the attempt is over when it returns
            run.advance(State.CANCELLED, message=NO_ANSWER)
    for gpu in Gpu.objects.online():
        resume_denied(gpu)
    start_scheduled()
    repeat_contended()
    dispatch()
    watch()


def resume_denied(gpu: Gpu) -> None:
    """Runs that the agent does not hold. One that began: starts the next attempt for the missing workloads. One that did not:
    its message was lost, and the same attempt is sent again; agents ignore duplicates."""
    if gpu.seen_at is None:
        return
    quiet = Run.objects.sent().filter(gpu=gpu, sent_at__lt=gpu.seen_at - SETTLE)
    quiet = quiet.exclude(progress_at__gte=gpu.seen_at - SETTLE)
    for run in quiet.select_related("gpu", "environment"):
        if [run.pk, run.attempt] in gpu.active_attempts:
            continue
        if run.state == State.RUNNING or run.cancel_requested:
            _resume(run)
        elif _is_unmoved(run).filter(state=State.QUEUED).update(sent_at=timezone.now()):
            transaction.on_commit(partial(execute, run))


def _is_unmoved(run: Run) -> RunQuerySet:
    """For compare-and-set: this run, if it is still sent and its attempt is the same."""
    return Run.objects.sent().filter(pk=run.pk, attempt=run.attempt)


def _resume(run: Run) -> None:
    if run.cancel_requested:
        run.advance(State.CANCELLED)
        return
    if run.attempts_without_progress >= MAX_WITHOUT_PROGRESS:
        text = f"Gave up: {run.attempts_without_progress} attempts in a row measured no new workload."
        run.advance(State.LOST, message=text)
        return
    if _is_unmoved(run).update(attempt=F("attempt") + 1, seq=0, sent_at=timezone.now()):
        run.refresh_from_db()
        log.warning("run %s goes on as attempt %s", run.pk, run.attempt)
        transaction.on_commit(lambda: execute(run))
