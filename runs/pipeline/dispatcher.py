"""The dispatcher: gives each idle device that takes runs exactly one, chosen in the database (runs/queries/queue.py says which).

Any message may be lost: the row records it, and the reaper resends it.
"""

from __future__ import annotations

import logging

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone
from pydantic import ValidationError

from benchsite.queues import device_queue
from kernels.submission import Unreadable
from kernels.workload import sentence
from runs.messages import send
from runs.models import Gpu, Run
from runs.queries.queue import device_seconds_lately, estimate_new, next_of, waiting

log = logging.getLogger(__name__)


def dispatch() -> list[Run]:
    """Sends a waiting run to every idle device. Returns the runs sent."""
    idle = list(Gpu.objects.taking_runs().exclude(pk__in=Run.objects.sent().values("gpu")).in_order())
    estimate_new()
    runs = waiting() if idle else []
    used = device_seconds_lately() if runs else {}
    sent = []
    for gpu in idle:
        run = next_of(runs, gpu, used)
        if run is None:
            continue
        runs.remove(run)
        if claim(run, gpu):
            execute(run)
            sent.append(run)
    return sent


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
