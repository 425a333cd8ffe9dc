"""The dispatcher: gives each idle device exactly one run, chosen in the database.

Order: priority; then the person with the least recent device time; then age. Any message may be lost: the row records
it, and the reaper resends it.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import F, Q, Sum
from django.utils import timezone
from pydantic import ValidationError

from benchsite.queues import device_queue
from kernels.submission import Unreadable
from kernels.workload import sentence
from runs.messages import send
from runs.models import Gpu, Run

log = logging.getLogger(__name__)
FAIRNESS_WINDOW = timedelta(hours=24)


def dispatch() -> list[Run]:
    """Sends a waiting run to every idle device. Returns the runs sent."""
    busy = Run.objects.sent().values("gpu")
    sent = []
    for gpu in Gpu.objects.online().exclude(pk__in=busy).in_order():
        run = next_for(gpu)
        if run and claim(run, gpu):
            execute(run)
            sent.append(run)
    return sent


def next_for(gpu: Gpu) -> Run | None:
    mine = Run.objects.waiting().filter(Q(gpu=gpu) | Q(gpu=None, device_name=gpu.name))
    candidates = list(mine.order_by("-priority", "pk").only("pk", "priority", "user")[:500])
    if not candidates:
        return None
    used = device_seconds_lately()
    return min(candidates, key=lambda run: (-run.priority, used.get(run.user_id, 0), run.pk))


def device_seconds_lately() -> dict[int | None, float]:
    """Seconds of device time per person in the last day."""
    ended = Run.objects.filter(started_at__gte=timezone.now() - FAIRNESS_WINDOW, finished_at__gt=F("started_at"))
    sums = ended.values("user").annotate(spent=Sum(F("finished_at") - F("started_at")))
    return {row["user"]: row["spent"].total_seconds() for row in sums if row["spent"]}


def claim(run: Run, gpu: Gpu) -> bool:
    """Compare-and-set: assigns this run to this device. False if the run was taken, or the device has one."""
    try:
        with transaction.atomic():
            claimed = Run.objects.waiting().filter(pk=run.pk)
            if not claimed.update(gpu=gpu, sent_at=timezone.now(), attempt=F("attempt") + 1, seq=0):
                return False
    except IntegrityError:  # one_run_per_device
        return False
    run.refresh_from_db()
    return True


def execute(run: Run) -> None:
    """Sends the run's current attempt to its device. An agent ignores an attempt that it knows."""
    assert run.gpu is not None
    try:
        spec = run.run_spec()
    except ValidationError as error:  # written by an earlier version of the site
        run.advance(Run.State.FAILED, message=f"This version cannot read its config: {sentence(error)}")
        return
    except Unreadable as error:
        run.advance(Run.State.FAILED, message=f"The run cannot be sent: {error}.")
        return
    log.info("sent to %s", run.gpu, extra={"run": run.pk, "attempt": run.attempt})
    send("execute", spec.as_message(), queue=device_queue(run.gpu.uuid))
