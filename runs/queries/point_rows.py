"""Rows of results of many runs, as points: what histories, ladders, boards and lists are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django.db.models import Case, Exists, F, IntegerField, Max, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Cast

from kernels.contract.arm_result import NO_SPEEDUP, ArmResult, Status, Verdict
from kernels.contract.events import Measured
from kernels.report.comparison import COMPARABILITY_KEYS
from runs.models import Kernel, Measurement, Newest, Result, Session, Workload
from runs.queries.points import Point, RunResult

READ = {
    "pk": "pk", "kernel": "kernel__name", "limit_ms": "limit_ms", "status": "status", "why": "why", "n": "n",
    "rounds": "rounds", "p50_ms": "p50_ms", "p50_low_ms": "p50_low_ms", "p50_high_ms": "p50_high_ms",
    "speedup": "speedup", "speedup_low": "speedup_low", "speedup_high": "speedup_high", "paired": "paired",
    "left_after_round": "left_after_round", "effective_sample_size": "effective_sample_size",
    "is_checked": "is_checked", "other_work": "other_work", "version": "version", "sha256": "version__sha256",
    "is_confirmed": "confirmed",
}  # fmt: skip
"""Fields of each result, by their name in Point."""
PLACE = {
    "mode": "mode", "group": "group", "baseline": "baseline", "margin": "margin", "workload": "workload",
    "run": "run", "created_at": "run__created_at", "gpu": "run__gpu", "started_at": "run__started_at",
    "environment": "run__environment", "demo": "run__demo", "contended": "run__contended", "withdrawn_at": "run__withdrawn_at",
    "isolated": "isolated", "processes": "its_processes",
}  # fmt: skip
"""Fields that all results of a measurement share, by their name in Point: in its order, after those of READ."""
FAILED = [status for status in Status if status not in (Status.OK, Status.UNSUPPORTED)]
AT_ONCE = 900
"""Most row ids in one query: some databases take no more than 999 values."""


def tells(measured: Measured, arm: ArmResult) -> bool:
    """Whether a result belongs to a history: `tried` reads the same from rows."""
    return arm.status != Status.UNSUPPORTED and measured.mode != "verify"


def tried(
    kernel: Kernel | None = None,
    *,
    environments: Iterable[int] | None = None,
    session: Session | None = None,
    key: str = "",
    withdrawn: bool = False,
    unsupported: bool = False,
) -> QuerySet[Result]:
    """Results of a kernel, in environments, in a session, on a workload; without mere checks, and unless they are asked for
    without unsupported ones and those of withdrawn runs."""
    rows = Result.objects.exclude(measurement__mode="verify")
    if not unsupported:
        rows = rows.exclude(status=Status.UNSUPPORTED)
    if not withdrawn:
        rows = rows.filter(measurement__run__withdrawn_at=None)
    if kernel is not None:
        rows = rows.filter(kernel=kernel)
    if environments is not None:
        # Not a join: the database would rather read every run of these environments than walk along a kernel's newest.
        there = Measurement.objects.filter(pk=OuterRef("measurement"), run__environment__in=list(environments))
        rows = rows.filter(Exists(there))
    if session is not None:
        rows = rows.filter(measurement__run__session=session)
    return rows.filter(measurement__workload__key=key) if key else rows


def newest() -> QuerySet[Result]:
    """The newest result of each kernel on each terms, confirmed and contended ones apart: from the table beside them."""
    return Result.objects.filter(pk__in=Newest.objects.values("result"))


def at(pks: Any) -> QuerySet[Result]:
    """Results by their row ids, or by a query for these."""
    return Result.objects.filter(pk__in=pks)


def last_runs(kernel: Kernel | None = None) -> dict[int, int]:
    """Environment -> the last run in it with a result of the kernel, or of any: from the newest results, which lack a
    baseline that failed. Of such failures only the last ones are read."""
    rows = newest()
    if kernel is not None:
        failed = Result.objects.filter(kernel=kernel, status__in=FAILED).order_by("-pk").values("pk")[:AT_ONCE]
        failed = tried().filter(pk__in=failed, measurement__baseline=kernel.name).order_by().values("pk")
        rows = at(Newest.objects.filter(result__kernel=kernel).values("result").union(failed))
    places = rows.order_by().values_list("measurement__run__environment").annotate(last=Max("measurement__run"))
    return {environment: run for environment, run in places if environment is not None}


def points(rows: QuerySet[Result], most: int | None = None, are_few: bool = False) -> list[Point]:
    """The results, those of the newest run first. most: number of results read, those that were stored last. are_few: of a
    kernel on one workload. A database that may stop early looks for those among all of the kernel, so they are found first."""
    if most is not None and most <= AT_ONCE and are_few:
        rows = at(sorted(rows.order_by().values_list("pk", flat=True))[-most:])
    elif most is not None:
        rows = at(rows.order_by("-pk").values("pk")[:most])
    read = list(rows.order_by("-measurement__run", "pk").values_list("measurement", *READ.values()))
    places, failed = _places(list({measurement for measurement, *_ in read}))
    made = []
    for measurement, *values in read:
        point = Point(*values, *places[measurement])
        made.append(replace(point, **NO_SPEEDUP) if measurement in failed else point)
    return made


def _places(pks: list[int]) -> tuple[dict[int, tuple[Any, ...]], set[int]]:
    """(measurement -> what its results share, those whose baseline is not ok: no ratio stands over such a one)."""
    places: dict[int, tuple[Any, ...]] = {}
    failed: set[int] = set()
    more: dict[str, Any] = {
        f"base_{name}": Subquery(baselines_of("pk", "baseline").values(column)[:1])
        for name, column in {"sha256": "version__sha256", "p50_ms": "p50_ms", "status": "status"}.items()
    }
    # As annotations: Django resolves "protocol__rest" through an exception that keeps all that a page has read until the
    # garbage collector comes.
    more |= {f"its_{key}": KeyTransform(key, "protocol") for key in ("processes", *COMPARABILITY_KEYS)}
    names = [*PLACE.values(), "base_sha256", "base_p50_ms"]
    how = [f"its_{key}" for key in COMPARABILITY_KEYS]
    for chunk in (pks[start : start + AT_ONCE] for start in range(0, len(pks), AT_ONCE)):
        rows = Measurement.objects.filter(pk__in=chunk).order_by().annotate(**more)
        for pk, base_status, *values in rows.values_list("pk", "base_status", *names, *how):
            places[pk] = (*values[: len(names)], tuple(values[len(names) :]))
            if base_status not in (None, Status.OK):
                failed.add(pk)
    return places, failed


def baselines_of(measurement: str = "measurement", baseline: str = "measurement__baseline") -> QuerySet[Result]:
    """The baseline's result beside a result, or of a measurement, for subqueries."""
    return Result.objects.filter(measurement=OuterRef(measurement), kernel__name=OuterRef(baseline))


def run_results(runs: list[int]) -> list[RunResult]:
    """Results of these runs, in one query: of a baseline, only one that is not ok. No ratio stands over such a one."""
    if not runs:
        return []
    columns = (
        "measurement__run", "measurement", "measurement__workload", "kernel__operation", "kernel__name",
        "measurement__baseline", "measurement__margin", *RunResult._fields[7:],
    )  # fmt: skip
    rows = Result.objects.filter(measurement__run__in=runs).exclude(measurement__mode="verify").order_by("pk")
    rows = rows.exclude(status=Status.OK, kernel__name=F("measurement__baseline"))
    short = Q(measurement__isolated=True, why__startswith=Verdict.TOO_SHORT)
    rows = rows.annotate(in_pairs=Cast("paired", IntegerField()))  # a number needs no conversion
    rows = rows.annotate(is_too_short=Case(When(short, then=1), default=0))
    results = [RunResult._make(row) for row in rows.values_list(*columns)]
    failed = {one.measurement for one in results if one.kernel == one.baseline}
    if not failed:
        return results
    return [one._replace(**NO_SPEEDUP) if one.measurement in failed else one for one in results]


def is_unconfirmed(run: int, kernel: str) -> bool:
    """Whether a result of this kernel in a run is not confirmed."""
    return Result.objects.filter(measurement__run=run, kernel__name=kernel, confirmed=False).exists()


def first_measured(versions: str = "pk") -> Subquery:
    """When a version of a kernel was first measured, for a query of versions; None: never."""
    rows = Result.objects.filter(version=OuterRef(versions)).exclude(status=Status.UNSUPPORTED).order_by("pk")
    return Subquery(rows.values("measurement__run__created_at")[:1])


def workloads_of(kernel: Kernel) -> QuerySet[Workload]:
    """Those with a result of a kernel."""
    there = Measurement.objects.filter(results__kernel=kernel).values("workload")
    return Workload.objects.filter(pk__in=there)
