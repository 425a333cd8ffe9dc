"""What is not kept for ever: raw samples, share links, events that could not be stored. Every hour, a part at a time.

Figures, verdicts and pages do not need raw samples: they were computed before. The page of a result says that its samples
are gone, and when.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from runs.models import Measurement, Notice, RejectedEvent, Result, Run, Share

MOST_RUNS = 200
"""At a time: the recorder waits meanwhile for at most one of them."""
KEEP_REJECTED_DAYS = KEEP_NOTICES_DAYS = 90
LOOKED_AT = 1000
"""Entries of each index that SQLite looks at: it takes some 30 ms, however many there are."""


def prune(most: int = MOST_RUNS) -> Counter[str]:
    """Deletes what is older than the settings say. Returns how much of what."""
    deleted: Counter[str] = Counter()
    if before := _before(settings.KEEP_SAMPLES_DAYS):
        for run in with_samples(before)[:most]:
            deleted["samples of runs"] += _forget_samples(run)
    if before := _before(settings.KEEP_SHARES_DAYS):
        old = Q(page=None, created_at__lt=before) | Q(ended_at__lt=before) | Q(expires_at__lt=before)
        deleted["share links"] += Share.objects.filter(old).delete()[0]  # a status page hangs on a wall for years
    told = Notice.objects.filter(at__lt=timezone.now() - timedelta(days=KEEP_NOTICES_DAYS))
    deleted["notices"] += told.delete()[0]
    rejected = RejectedEvent.objects.filter(at__lt=timezone.now() - timedelta(days=KEEP_REJECTED_DAYS))
    deleted["rejected events"] += rejected.delete()[0]
    return deleted


def refresh_statistics() -> None:
    """Tells SQLite how its tables are filled: without, it reads all results of a kernel to find those on one workload.
    PostgreSQL does it by itself."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA analysis_limit = {LOOKED_AT}")
            cursor.execute("ANALYZE")


def _before(days: int | None) -> datetime | None:
    return None if days is None else timezone.now() - timedelta(days=days)


def with_samples(before: datetime) -> list[int]:
    """Finished runs that ended before, oldest first, and still have samples. Demo runs keep theirs."""
    runs = Run.objects.filter(finished_at__lt=before, samples_deleted_at=None, demo="")
    return list(runs.order_by("finished_at").values_list("pk", flat=True))


@transaction.atomic
def _forget_samples(run: int) -> int:
    """1 if the run had samples to delete; of one that was marked meanwhile, 0."""
    marked = Run.objects.filter(pk=run, samples_deleted_at=None).update(samples_deleted_at=timezone.now())
    if marked:
        Result.objects.filter(measurement__run=run).update(samples_ns=None)
        Measurement.objects.filter(run=run).update(aa_samples_ns=None)
    return marked
