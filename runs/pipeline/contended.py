"""Contended runs: measured again, once, when the foreign process has left the GPU; their results are noted apart."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from pydantic import ValidationError

from kernels.workload import Config
from runs.models import Gpu, Newest, Run
from runs.models.run import State
from runs.pipeline.confirmed import put_newer, put_older

log = logging.getLogger(__name__)
NOT_LATER_THAN = timedelta(days=1)
"""After a day nobody waits for it any more."""


def repeat_contended() -> list[Run]:
    """Queues at most one run for each idle GPU without a foreign process: its oldest contended run of the last day that has
    not been repeated, and is no such repetition itself."""
    busy = Run.objects.active().exclude(gpu=None).values("gpu")
    free = Gpu.objects.taking_runs().filter(kind="cuda", foreign=0).exclude(pk__in=busy)
    return [run for gpu in free for run in [_repeat_on(gpu)] if run]


def _spec(run: Run) -> Config | None:
    """None of a run that an earlier version of the site wrote and this one cannot read."""
    try:
        return run.spec
    except ValidationError:
        return None


@transaction.atomic
def _repeat_on(gpu: Gpu) -> Run | None:
    Gpu.objects.select_for_update().get(pk=gpu.pk)  # two reapers at once queue one run
    since = timezone.now() - NOT_LATER_THAN
    mine = Run.objects.filter(
        gpu=gpu, state=State.DONE, contended=True, finished_at__gte=since, demo="", withdrawn_at=None
    )
    mine = mine.filter(Q(repeats=None) | Q(repeats__contended=False), repeated_by=None)
    found = ((one, _spec(one)) for one in mine.select_related("session", "user").order_by("pk").iterator())
    first, spec = next(((one, spec) for one, spec in found if spec), (None, None))
    if first is None or spec is None:
        return None
    run = Run.objects.submit(
        spec,
        gpu=gpu,
        user=first.user,
        title=first.title,
        note=f"Another process was on the GPU in run {first.pk}. This run measures the same again.",
        repeats=first,
        session=first.session,
        tune=first.plan,
    )
    log.info("measures run %s again, which was contended", first.pk, extra={"run": run.pk})
    return run


def note_apart(run: Run) -> None:
    """Notes the results of a run apart that turned out to be contended after some were noted: what they hid counts again."""
    for measurement in run.measurements.select_related("run"):
        terms = [row.terms for row in Newest.objects.rows_of(measurement)]
        wrong = Newest.objects.filter(result__measurement=measurement).exclude(terms__in=terms)
        if missing := set(wrong.values_list("terms", flat=True)):
            wrong.delete()
            put_older(measurement, missing)
            put_newer(measurement)
