"""Withdrawing a run: its figures stay readable and count nowhere. It can be taken back."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from runs.models import Audit, Change, Newest, Run
from runs.pipeline.confirmed import put_newer, put_older, settle


@transaction.atomic
def withdraw(run: Run, why: str, user: Any = None) -> bool:
    """Withdraws an ended run. False if it still runs, or is withdrawn already."""
    if run.is_active or run.withdrawn_at:
        return False
    run.withdrawn_at, run.withdrawn_by, run.withdrawn_why = timezone.now(), user, why
    run.looked_at = None  # the watch looks at its lines again
    run.save(update_fields=["withdrawn_at", "withdrawn_by", "withdrawn_why", "looked_at"])
    Audit.objects.note(user, Audit.Kind.WITHDRAWN, f"run {run.pk}: {why}", run.get_absolute_url())
    Change.objects.filter(run=run, acknowledged_at=None).delete()
    for measurement in run.measurements.all():
        held = Newest.objects.filter(result__measurement=measurement)
        missing = set(held.values_list("terms", flat=True))
        held.delete()
        put_older(measurement, missing)
    settle(run.measurements.select_related("run__environment", "workload"))
    return True


@transaction.atomic
def restore(run: Run, user: Any = None) -> bool:
    """Takes a withdrawal back. False if there is none."""
    if not run.withdrawn_at:
        return False
    run.withdrawn_at, run.withdrawn_by, run.withdrawn_why, run.looked_at = None, None, "", None
    run.save(update_fields=["withdrawn_at", "withdrawn_by", "withdrawn_why", "looked_at"])
    Audit.objects.note(user, Audit.Kind.RESTORED, f"run {run.pk}: {run.title}", run.get_absolute_url())
    for measurement in run.measurements.select_related("run"):
        put_newer(measurement)
    settle(run.measurements.select_related("run__environment", "workload"))
    return True
