"""The last days in a few reads: what changed, which records fell, how far the targets are, how busy each device was.

Each is read from what is newest (runs/models/newest.py), or from an index by time: none looks at all results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.db.models import Case, F, Max, OuterRef, Q, QuerySet, RowRange, Subquery, When, Window
from django.db.models.functions import Coalesce
from django.utils import timezone

from kernels.analysis.changes import Change as Verdict
from kernels.analysis.statistics import WIDEST_MARGIN
from kernels.catalog import operations
from kernels.contract.arm_result import Status
from runs.models import Change, Gpu, Measurement, Newest, Result, Run, Target, Workload
from runs.models.run import ACTIVE
from runs.queries import history, leaders, point_rows
from runs.queries.changed import with_places
from runs.queries.history import Series
from runs.queries.leaders import Placed
from runs.queries.points import Point
from runs.queries.ratio import Ratio
from runs.queries.targets import Standings, standings

PERIOD = timedelta(days=7)
MOST_CHANGES, MOST_TARGETS = 200, 60
MOST_RECENT = 60
"""Newest confirmed results whose workloads are looked at for records."""
SLOTS = 48
"""Of a day: half hours."""


def changes(since: datetime) -> list[Change]:
    """Changes that were found in this time: regressions before others, the largest first."""
    first = Case(When(verdict=Verdict.REGRESSION, then=0), default=1)
    rows = with_places(Change.objects.filter(found_at__gte=since)).order_by(first)[:MOST_CHANGES]
    return sorted(rows, key=lambda row: (row.verdict != Verdict.REGRESSION, -abs(row.ratio - 1)))


# --- records and targets: one read -------------------------------------------------------------------------------------


@dataclass
class Broken:
    """A workload on a GPU model with its records."""

    workload: Workload
    gpu: str
    steps: list[Placed]
    """All records there, oldest first."""
    able: list[Placed]
    """What can hold a record there, oldest first: also what ties one, and a holder measured again."""
    series: dict[int, Series]
    """Result -> how it was measured."""

    @property
    def now(self) -> Placed:
        return self.steps[-1]

    @property
    def before(self) -> Placed | None:
        return self.steps[-2] if len(self.steps) > 1 else None

    @property
    def cell(self) -> str:
        """Its place on the leaderboard."""
        return f"{self.workload.key}-{self.gpu}"

    @property
    def at(self) -> datetime:
        return when(self.now.point)

    @property
    def label(self) -> str:
        """Its chart in words."""
        names = (f"{in_words(step.ratio)} by {step.point.kernel}" for step in self.steps)
        told = [name + (f", other {differ}" if differ else "") for name, differ in zip(names, self.differ, strict=True)]
        return f"Records on {self.workload.label}, {self.gpu}, oldest first: {'; '.join(told)}"

    @cached_property
    def differ(self) -> list[str]:
        """Of each record, what differs from the one before it: "host and driver"; empty: both were measured alike."""
        return history.differences([self.series[step.point.pk] for step in self.steps])

    @property
    def said(self) -> str:
        """The new record and the one that it beat, in words."""
        if self.before is None:
            return f"{in_words(self.now.ratio)}."
        before = f"{in_words(self.before.ratio)} by {self.before.point.kernel}"
        if not self.differ[-1]:
            return f"{in_words(self.now.ratio)}, before {before}."
        return f"{in_words(self.now.ratio)}. The earlier record is {before}. Its {self.differ[-1]} differed."


def in_words(ratio: Ratio) -> str:
    """ "1.52x (1.51 to 1.53)" """
    return f"{ratio.ratio:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"


@dataclass
class Read:
    records: list[Broken] = field(default_factory=list)
    standings: Standings = field(default_factory=Standings)


def when(point: Point) -> datetime:
    return point.started_at or point.created_at


def read(since: datetime, targets: Sequence[Target], gpus: Iterable[Gpu]) -> Read:
    """Records that fell in this time, the newest first, and how far the targets are."""
    fresh = Newest.objects.filter(confirmed=True, result__measurement__run__started_at__gte=since)
    fresh = fresh.filter(result__measurement__run__demo="", result__speedup_low__gt=1)
    wanted: QuerySet[Any] = rising(fresh.order_by("-result_id").values("workload")[:MOST_RECENT]).values("pk")
    if targets:
        of_targets = Newest.objects.filter(workload__in={one.workload_id for one in targets}).values("result")
        wanted = wanted.union(of_targets)
    points = point_rows.points(point_rows.at(wanted))
    series = history.grouped(points, gpus={gpu.pk: gpu for gpu in gpus}) if points else []
    return Read(_broken(series, since), standings(targets, series))


def rising(workloads: Any) -> QuerySet[Result]:
    """Results that are above all before them of the same source, on a workload and in an environment: every record is among
    them, and the surest result of its holder."""
    there = Measurement.objects.filter(workload__in=workloads, margin__lte=WIDEST_MARGIN)
    there = there.filter(run__demo="", run__contended=False)
    there = there.filter(run__withdrawn_at=None)
    rows = Result.objects.filter(measurement__in=there.order_by().values("pk"), status=Status.OK, is_checked=1)
    rows = leaders.standing(rows).filter(confirmed=True, paired=True, other_work="", speedup_low__gt=1)
    place = [F("measurement__workload"), F("measurement__run__environment"), F("kernel"), F("version")]
    frame = RowRange(end=-1)
    before = Window(Max("speedup_low"), partition_by=place, order_by=["measurement__run", "pk"], frame=frame)
    above: QuerySet[Result] = (
        rows.order_by().annotate(before=before).filter(Q(before=None) | Q(speedup_low__gt=F("before")))
    )
    return above


def records(workloads: Iterable[int]) -> list[Broken]:
    """The records of these workloads, on every GPU model."""
    points = point_rows.points(point_rows.at(rising(list(workloads)).values("pk")))
    return records_of(history.grouped(points)) if points else []


def steps(workload: Workload, gpu: str) -> list[Placed]:
    """The records of a workload on a GPU model, on any if none is named; oldest first."""
    return next((one.steps for one in records([workload.pk]) if gpu in ("", one.gpu)), [])


def _broken(series: Iterable[Series], since: datetime) -> list[Broken]:
    """The new records: those that beat another first, each part newest first."""
    new = (one for one in records_of(series) if one.at >= since)
    return sorted(new, key=lambda one: (one.before is not None, one.at), reverse=True)


def records_of(series: Iterable[Series]) -> list[Broken]:
    """Workloads and GPU models with a record."""
    there: dict[tuple[int, str], list[Series]] = {}
    for one in series:
        there.setdefault((one.terms.workload, str(one.environment.get("device") or "")), []).append(one)
    known, found = operations(), []
    for (_, gpu), together in there.items():
        workload = together[0].workload
        baseline = known[workload.operation].baseline if workload.operation in known else together[0].terms.baseline
        confirmed = [p for one in together for p in one.points if p.is_confirmed and leaders.stands(p)]
        if able := leaders.able([p for p in confirmed if not p.demo], baseline):
            known_by = {point.pk: one for one in together for point in one.points}
            found.append(Broken(workload, gpu, leaders.climb(able), able, known_by))
    return found


# --- runs and devices -----------------------------------------------------------------------------------------------------------


def active_and_newest(count: int) -> QuerySet[Run]:
    """Runs that wait or are on a device, and the newest ones, newest first, each with its `operation` if it has one."""
    first = Run.objects.order_by("-pk").values("pk")[count - 1 : count]
    newest = Q(pk__gte=Coalesce(Subquery(first), 0))
    return Run.objects.for_list().filter(Q(state__in=ACTIVE) | newest).annotate(operation=F("config__operation"))


@dataclass(frozen=True)
class Day:
    """The share of each half hour of today in which runs were on a device, and of today so far."""

    slots: list[float]
    share: float
    now: datetime

    @property
    def passed(self) -> int:
        """Half hours that have begun."""
        local = timezone.localtime(self.now)
        return min(SLOTS, 2 * local.hour + local.minute // 30 + 1)


def midnight(now: datetime) -> datetime:
    return timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)


def days(now: datetime, gpu: int | None = None) -> dict[int, Day]:
    """Device -> its day: of all devices on which runs were, or of one. A run that began more than a day before is left
    out."""
    begin = midnight(now)
    rows = Run.objects.filter(started_at__gte=begin - timedelta(days=1), gpu__isnull=False, demo="")
    if gpu is not None:
        rows = rows.filter(gpu=gpu)
    spans: dict[int, list[tuple[datetime, datetime]]] = {}
    for device, first, last in rows.order_by().values_list("gpu", "started_at", "finished_at"):
        if (last or now) > begin and first is not None:
            spans.setdefault(device or 0, []).append((max(first, begin), min(last or now, now)))
    return {device: day(begin, now, found) for device, found in spans.items()}


def day(begin: datetime, now: datetime, spans: Iterable[tuple[datetime, datetime]]) -> Day:
    length = 24 * 3600 / SLOTS
    slots = [0.0] * SLOTS
    for first, last in spans:
        start, end = ((at - begin).total_seconds() for at in (first, last))
        for slot in range(max(0, int(start // length)), min(SLOTS, int(end // length) + 1)):
            slots[slot] += max(0.0, min(end, (slot + 1) * length) - max(start, slot * length))
    so_far = (now - begin).total_seconds()
    return Day([min(1.0, busy / length) for busy in slots], min(1.0, sum(slots) / so_far) if so_far > 0 else 0.0, now)


def with_telemetry() -> Subquery:
    """For devices: the telemetry of the newest measurement of their newest run that has one."""
    run = Run.objects.filter(gpu=OuterRef(OuterRef("pk")), done__gt=0, demo="").order_by("-pk").values("pk")[:1]
    rows = Measurement.objects.filter(run=Subquery(run)).order_by("-pk")
    return Subquery(rows.values("telemetry")[:1])


def devices() -> list[Gpu]:
    """In order, each with `telemetry` of what was measured on it last."""
    return list(Gpu.objects.in_order().defer("catalogue").annotate(telemetry=with_telemetry()))
