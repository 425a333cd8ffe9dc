"""Withdrawing a run: its figures stay readable and count nowhere. It can be taken back."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from runs.models import Audit, Change, Measurement, Newest, Run

MOST_LOOKED_AT = 1000
"""Older measurements that are looked at, to find what was the newest before."""


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
        _put_older(measurement, run, missing)
    return True


def _put_older(measurement: Measurement, run: Run, missing: set[str]) -> None:
    """Gives each of these terms the newest result that is left."""
    older = Measurement.objects.filter(
        workload=measurement.workload_id, mode=measurement.mode, group=measurement.group, baseline=measurement.baseline,
        run__gpu=run.gpu_id, run__demo=run.demo, run__environment=run.environment_id, run__withdrawn_at=None,
    ).select_related("run")  # fmt: skip
    for one in older.order_by("-pk")[:MOST_LOOKED_AT] if missing else ():
        rows = [row for row in Newest.objects.rows_of(one) if row.terms in missing]
        Newest.objects.put(rows)
        missing -= {row.terms for row in rows}
        if not missing:
            return


@transaction.atomic
def restore(run: Run, user: Any = None) -> bool:
    """Takes a withdrawal back. False if there is none."""
    if not run.withdrawn_at:
        return False
    run.withdrawn_at, run.withdrawn_by, run.withdrawn_why, run.looked_at = None, None, "", None
    run.save(update_fields=["withdrawn_at", "withdrawn_by", "withdrawn_why", "looked_at"])
    Audit.objects.note(user, Audit.Kind.RESTORED, f"run {run.pk}: {run.title}", run.get_absolute_url())
    for measurement in run.measurements.select_related("run"):
        rows = Newest.objects.rows_of(measurement)
        there = dict(Newest.objects.filter(terms__in=[row.terms for row in rows]).values_list("terms", "result"))
        Newest.objects.put(row for row in rows if there.get(row.terms, 0) < row.result_id)
    return True
