"""Rows of results that lines and their changes need beside point_rows.points: what a run is a point of, the baseline's
times, and sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django.db.models import F

from kernels.contract.arm_result import Status
from runs.models import Change, Kernel, Result, Run, Workload


def touched(run: Run) -> Iterable[tuple[Kernel, Workload, str]]:
    """(kernel, workload, mode) of each time of a run."""
    rows = Result.objects.filter(measurement__run=run, status=Status.OK).exclude(measurement__mode="verify")
    rows = rows.select_related("kernel", "measurement__workload")
    return {(row.kernel, row.measurement.workload, row.measurement.mode) for row in rows}


class Base(NamedTuple):
    """The baseline of a measurement: its p50 with interval in ms, and the ratio to itself with interval."""

    run: int
    aa: list[float] | None
    p50_ms: float | None
    p50_low_ms: float | None
    p50_high_ms: float | None


def baselines(runs: Sequence[int], workload: Workload, mode: str, group: str, baseline: str) -> list[Base]:
    """Those of this name on a workload, in one query."""
    rows = Result.objects.filter(measurement__run__in=runs, status=Status.OK, kernel__name=baseline)
    rows = rows.filter(measurement__workload=workload, measurement__mode=mode, measurement__group=group)
    rows = rows.filter(measurement__baseline=F("kernel__name"))
    columns = ("measurement__run", "measurement__aa", "p50_ms", "p50_low_ms", "p50_high_ms")
    return [Base(*row) for row in rows.values_list(*columns)]


def sources(changes: Sequence[Change]) -> dict[tuple[int, int, int], tuple[str, str]]:
    """(run, kernel, workload) -> (sha256, source) of both sides of changes, in one query."""
    runs = {run for row in changes for run in (row.run_id, row.before_id)}
    of = Result.objects.filter(measurement__run__in=runs, kernel__in={row.kernel_id for row in changes})
    of = of.filter(measurement__workload__in={row.workload_id for row in changes}, version__isnull=False)
    place = ("measurement__run", "kernel", "measurement__workload")
    found = of.values_list(*place, "version__sha256", "version__source")
    return {(run, kernel, workload): (sha256, source) for run, kernel, workload, sha256, source in found}
