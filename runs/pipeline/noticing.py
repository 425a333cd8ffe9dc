"""What a run that ended gives notice of: its end, a record, a kernel that got slower, a target."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from kernels.analysis.changes import Change as Verdict
from runs.models import Change, Newest, Notice, Run, Target
from runs.models.notice import Event
from runs.queries import history, point_rows, week
from runs.queries.targets import REACHED, standings

NOT_OLDER = timedelta(days=1)
"""Of a run that ended earlier nobody is told: a site that was restored, or stood still, would tell of everything."""


def notice(run: Run) -> None:
    """Gives notice of a run that has ended, once. Demo runs and old ones are left out."""
    if run.demo or run.finished_at is None or run.finished_at < timezone.now() - NOT_OLDER:
        return
    page = reverse("run", args=[run.pk])
    what = f"{run.title or run.config_name} on {run.gpu.name if run.gpu else run.device_name}"
    why = f" {run.message}" if run.message else ""
    facts = {"state": run.state, "config": run.config_name, "title": run.title}
    Notice.objects.give(Event.RUN, str(run.pk), f"Run {run.pk} ({what}) ended: {run.state}.{why}", page, run, facts)
    for event, key, sentence, path, more in [*_regressions(run), *_records(run), *_targets(run)]:
        Notice.objects.give(event, key, sentence, path, run, more)


Told = tuple[Event, str, str, str, dict[str, Any]]


def _regressions(run: Run) -> Iterator[Told]:
    """Changes for the worse that the watch has found with this run."""
    found = Change.objects.filter(verdict=Verdict.REGRESSION, acknowledged_at=None, found_at__gte=run.finished_at)
    mine = Q(workload__in=run.measurements.values("workload"), gpu=run.gpu)
    for one in found.filter(mine).select_related("kernel", "workload", "gpu"):
        slower = f"slower by {one.ratio - 1:.1%} ({one.low - 1:.1%} to {one.high - 1:.1%})"
        sentence = f"{one.kernel.name} on {one.workload.label}, {one.gpu.name}, is {slower} since run {one.run_id}."
        key = f"{one.kernel_id}:{one.workload_id}:{one.gpu_id}:{one.mode}:{one.run_id}"
        facts = {
            "kernel": one.kernel.name, "operation": one.workload.operation, "workload": one.workload.label,
            "device": one.gpu.name, "mode": one.mode, "ratio": one.ratio, "low": one.low, "high": one.high,
            "since_run": one.run_id,
        }  # fmt: skip
        path = reverse("kernel_workload", args=[one.workload.operation, one.kernel.name, one.workload.key])
        yield Event.REGRESSION, key, sentence, path, facts


def _records(run: Run) -> Iterator[Told]:
    """Records that this run broke. The first one of a workload broke none."""
    for one in week.records(run.measurements.values_list("workload", flat=True).distinct()):
        before = one.before
        if before is None or one.now.point.run != run.pk:
            continue
        sentence = f"{one.now.point.kernel} has the record on {one.workload.label}, {one.gpu}: {one.said}"
        facts = {
            "kernel": one.now.point.kernel, "operation": one.workload.operation, "workload": one.workload.label,
            "device": one.gpu, "speedup": one.now.ratio.ratio, "low": one.now.ratio.low, "high": one.now.ratio.high,
            "before": {
                "kernel": before.point.kernel, "run": before.point.run, "speedup": before.ratio.ratio,
                "low": before.ratio.low, "high": before.ratio.high, "differ": one.differ[-1],
            },
        }  # fmt: skip
        yield Event.RECORD, f"{one.cell}:{run.pk}", sentence, reverse("run", args=[run.pk]), facts


def _targets(run: Run) -> Iterator[Told]:
    """Targets that this run's kernels reach."""
    aims = Target.objects.filter(workload__in=run.measurements.values("workload"))
    targets = list(aims.select_related("workload", "pin__run__environment"))
    if not targets:
        return
    newest = Newest.objects.filter(workload__in={one.workload_id for one in targets}).values("result")
    for one in standings(targets, history.grouped(point_rows.points(point_rows.at(newest)))).progress:
        best = one.best if one.state == REACHED else None
        if best is None or best[0].run != run.pk:
            continue
        target = one.target
        loose = "" if best[0].is_confirmed else ", unconfirmed"
        sentence = f"The target of {target} is reached{loose}: {best[0].kernel}, {week.in_words(best[1])}."
        facts = {
            "kernel": best[0].kernel, "operation": target.workload.operation, "workload": target.workload.label,
            "device": target.device, "mode": target.mode, "factor": target.factor, "speedup": best[1].ratio,
            "low": best[1].low, "high": best[1].high,
        }  # fmt: skip
        path = f"{reverse('tier_workload', args=[target.workload.key, target.mode])}?{urlencode({'device': target.device})}"
        yield Event.TARGET, f"{target.pk}:{target.factor!r}", sentence, path, facts
