"""Results of all runs that match a search: pages by keyset, whole files chunk by chunk.

A site has a million results, whose rows are large. So a page is found on indexes, from the newest measurement back
(`_measurements`: each condition on a measurement is a probe, none drives the search), and read after that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import reduce
from operator import and_, or_
from typing import Any, NamedTuple

from django.db.models import BigIntegerField, Exists, ExpressionWrapper, F, FloatField, OuterRef, Q, QuerySet, Value
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Concat
from django.utils import timezone

from kernels.contract.arm_result import Status, Verdict
from kernels.report import tables
from kernels.report.measures import BY_KEY
from runs.models import Kernel, Measurement, Result, Run, Workload
from runs.queries import measurements
from runs.queries.measurements import StoredArm, StoredMeasured
from runs.queries.search import Figure, Search, Size, in_label
from runs.queries.vocabulary import STATUSES
from runs.queries.words import OK, word

FIRST, AT_ONCE = 50, 400
"""Results of the first chunk of a file, so that it begins at once, and of the others."""
FEW = 3000
"""Up to so many measurements that match, a sorted page sorts their results; else it walks along the column's index."""
WALK = 10_000
"""Figures of that index that are looked at, before all that match are sorted."""
DECIDED = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME)
NEWEST, OLDEST = "-measured_at", "measured_at"
COLUMN = {
    name: name
    for name in (
        "speedup", "p50_ms", "mean_ms", "std_ms", "min_ms", "max_ms", "tflops", "gb_per_s", "limit_share",
        "peak_memory_bytes", "compile_s", "registers", "local_bytes", "static_shared_bytes", "dynamic_shared_bytes",
        "occupancy", "n", "rounds",
    )
} | {"slowdown": "-speedup", "calls_per_s": "-p50_ms", "gflops": "tflops"}  # fmt: skip
"""Measure -> the column that its order is that of; with a minus, of the other way round."""


class NoOrder(ValueError):
    """Results cannot be in the order that was asked for. The message is a sentence."""


class Key(NamedTuple):
    """Where a result stands in the order."""

    value: float
    """Of the column that it is ordered by; 0 if by date."""
    run: int
    measurement: int
    pk: int

    @property
    def text(self) -> str:
        """For an address."""
        return "_".join(map(repr, self))

    @classmethod
    def of(cls, text: str) -> Key | None:
        """None: it is none."""
        value, *numbers = text.split("_")
        try:
            if len(numbers) == 3 and all(n.isascii() and n.isdecimal() and len(n) < 19 for n in numbers):
                return cls(float(value), *map(int, numbers))
        except ValueError:
            pass
        return None


@dataclass(frozen=True)
class Order:
    """newest first, oldest first, or by a column, whose results without a valid figure are left out."""

    column: str = ""
    descending: bool = True

    @classmethod
    def of(cls, sort: str) -> Order:
        key, descending = sort.removeprefix("-"), sort.startswith("-")
        if key in ("", OLDEST):
            return cls("", descending or not key)
        if key not in COLUMN:
            known = f"by {BY_KEY[key].title}" if key in BY_KEY else f"by {key[:40]!r}: there is no such column"
            raise NoOrder(f"Results of many runs cannot be sorted {known}.")
        column = COLUMN[key]
        return cls(column.removeprefix("-"), descending != column.startswith("-"))


class Found(NamedTuple):
    """A result with its place, and its row as every table and file has it."""

    key: Key
    run: Run
    measured: StoredMeasured
    arm: StoredArm
    row: tables.Row

    @property
    def gpu(self) -> str:
        return self.run.gpu.name if self.run.gpu else self.run.device_name

    @property
    def host(self) -> str:
        return self.run.gpu.host if self.run.gpu else ""

    @property
    def person(self) -> str:
        return self.run.user.get_username() if self.run.user else ""

    @property
    def when(self) -> datetime:
        return self.run.started_at or self.run.created_at

    @property
    def base(self) -> StoredArm | None:
        return self.measured.arm(self.measured.baseline)

    @property
    def place(self) -> dict[str, Any]:
        """The first columns of files."""
        return {
            "run": self.run.pk, "result": self.arm.pk, "measured_at": self.when.isoformat(), "operation": self.row.operation,
            "dtype": self.measured.workload.dtype, "gpu": self.gpu, "host": self.host, "person": self.person,
            "label": self.run.title, "contended": self.run.contended, "demo": bool(self.run.demo),
            "withdrawn": bool(self.run.withdrawn_at),
        }  # fmt: skip


PLACE = (
    "run", "result", "measured_at", "operation", "dtype", "gpu", "host", "person", "label", "contended", "demo",
    "withdrawn",
)  # fmt: skip


def page(asked: Search, order: Order, after: Key | None, most: int) -> list[Found]:
    """The next results after a place, at most so many. Two queries; three in the order of a column."""
    keys = _keys(asked, order, after, most)
    read = measurements.with_baselines([key.pk for key in keys], list({key.measurement for key in keys}))
    return [
        Found(key, run, measured, arm, tables.row(measured, arm, run.contended))
        for key in keys
        for run, measured, arm in [read[key.pk]]
    ]


def every(asked: Search, order: Order) -> Iterator[Found]:
    """All of them, chunk by chunk."""
    after: Key | None = None
    most = FIRST
    while chunk := page(asked, order, after, most):
        yield from chunk
        after, most = chunk[-1].key, AT_ONCE


# --- where they stand -------------------------------------------------------------------------------------------------


def _keys(asked: Search, order: Order, after: Key | None, most: int) -> list[Key]:
    if order.column:
        return _keys_by_column(asked, order, after, most)
    matching, rows = _measurements(asked), _results(asked)
    if after:
        beyond = Q(run__lt=after.run) if order.descending else Q(run__gt=after.run)
        last = Q(run__lte=after.run) if order.descending else Q(run__gte=after.run)
        matching = matching.filter(last).filter(beyond | Q(run=after.run, pk__gte=after.measurement))
        rows = rows.filter(~Q(measurement=after.measurement) | Q(pk__gt=after.pk))
    run = "-run" if order.descending else "run"
    with_any = matching.filter(Exists(rows.filter(measurement=OuterRef("pk"))))
    rows = rows.filter(measurement__in=with_any.order_by(run, "pk").values("pk")[:most])
    rows = rows.order_by(run.replace("run", "measurement__run_id"), "measurement_id", "pk")
    return [Key(0.0, *numbers) for numbers in rows.values_list("measurement__run_id", "measurement_id", "pk")[:most]]


def _keys_by_column(asked: Search, order: Order, after: Key | None, most: int) -> list[Key]:
    # Of the status, an expression: the database would rather sort all that is ok than walk along the column's index.
    rows = _results(asked, is_sorted=True).alias(state=Concat("status", Value(""))).filter(state=Status.OK)
    rows = _valid(rows.filter(**{f"{order.column}__isnull": False}), asked, order.column)
    matching = _measurements(asked)
    if not matching.query.where:  # the index has the kernel and the status
        return _along(rows, order.column, order, after, most)
    if matching.values("pk")[: FEW + 1].count() > FEW:
        near = rows.filter(Exists(matching.filter(pk=OuterRef("measurement")))).filter(_near(order, after))
        if len(found := _along(near, order.column, order, after, most)) == most:
            return found
    # Not the column itself: the database would walk along its index, past everything that does not match.
    rows = rows.alias(figure=F(order.column) + 0.0).filter(measurement__in=matching.values("pk"))
    return _along(rows, "figure", order, after, most)


def _valid(rows: QuerySet[Any], asked: Search, column: str) -> QuerySet[Any]:
    """Without results of withdrawn runs. By speedup only what is decided, and not contended, unless the search asks for other
    words: the largest ratio is often noise, or that of other work."""
    rows = rows.exclude(measurement__run__in=Run.objects.exclude(withdrawn_at=None).values("pk"))
    if column != "speedup" or asked.values("verdict") or "contended" in asked.values("quality"):
        return rows
    rows = rows.exclude(measurement__run__in=Run.objects.filter(contended=True).values("pk"))
    return rows.alias(its_word=word()).filter(its_word__in=DECIDED)


def _near(order: Order, after: Key | None) -> Q:
    """The first WALK figures of a column after a place. What is found among them are the first; if it is too little, what is
    asked for stands at the other end, and walking there would take longer than sorting it."""
    sign, past = ("-", "gte") if order.descending else ("", "lte")
    beyond = "lte" if order.descending else "gte"
    figures = Result.objects.filter(**{f"{order.column}__isnull": False}).order_by(f"{sign}{order.column}")
    if after:
        figures = figures.filter(**{f"{order.column}__{beyond}": after.value})
    last = figures.values_list(order.column, flat=True)[WALK : WALK + 1].first()
    return Q() if last is None else Q(**{f"{order.column}__{past}": last})


def _along(rows: QuerySet[Result], figure: str, order: Order, after: Key | None, most: int) -> list[Key]:
    """The results after a place, in the order of a figure."""
    sign, past = ("-", "lt") if order.descending else ("", "gt")
    if after:
        rows = rows.filter(**{f"{figure}__{past}e": after.value})
        rows = rows.filter(
            Q(**{f"{figure}__{past}": after.value}) | Q(**{figure: after.value, f"pk__{past}": after.pk})
        )
    names = (order.column, "measurement__run_id", "measurement_id", "pk")
    return [Key._make(values) for values in rows.order_by(f"{sign}{figure}", f"{sign}pk").values_list(*names)[:most]]


# --- conditions -------------------------------------------------------------------------------------------------------


def _results(asked: Search, is_sorted: bool = False) -> QuerySet[Result]:
    """Conditions on results themselves: their kernel and their word. is_sorted: by a column, only those that are ok."""
    rows = Result.objects.order_by()
    kernels = Kernel.objects.order_by().values("pk")
    for quality in asked.values("quality"):
        if quality in ("confirmed", "unconfirmed"):
            rows = rows.filter(confirmed=quality == "confirmed")
    if names := asked.names("kernel"):
        kernels = kernels.filter(name__in=names)
    if names := asked.names("backend"):
        kernels = kernels.filter(backend__in=names)
    for number, figure in enumerate(asked.values("figure")):
        rows = rows.filter(OK).alias(**{f"figure_{number}": _measured(figure)})
        rows = rows.filter(**{f"figure_{number}{LOOKUPS[figure.sign]}": figure.value})
    if kernels.query.where:
        rows = rows.alias(its_kernel=_probed("kernel_id") if is_sorted else F("kernel_id")).filter(
            its_kernel__in=kernels
        )
    if words := asked.values("verdict"):
        statuses = {one for one in words if one in STATUSES}
        verdicts = set(words) - statuses
        has_status = Q(status__in=statuses) if statuses else Q(pk__in=[])
        if verdicts:
            has_word = Q(word__in=verdicts)
            rows = rows.alias(word=word()).filter(has_status | (has_word if is_sorted else has_word & OK))
        else:
            rows = rows.filter(has_status)
    return rows


def _measurements(asked: Search) -> QuerySet[Measurement]:
    """Conditions on measurements: their run, their workload, and how they were measured."""
    rows = Measurement.objects.order_by()
    if runs := _of_runs(asked):
        chosen = Run.objects.filter(reduce(and_, runs)).values("pk")
        rows = rows.filter(run__in=asked.values("run")) if asked.values("run") else rows
        rows = rows.alias(its_run=_probed("run_id")).filter(its_run__in=chosen)
    if workloads := _of_workloads(asked):
        alike = Workload.objects.filter(reduce(and_, workloads)).values("pk")
        rows = rows.alias(its_workload=_probed("workload_id")).filter(its_workload__in=alike)
    if modes := asked.values("mode"):
        rows = rows.filter(mode__in=modes)
    return rows


def _probed(column: str) -> ExpressionWrapper[CombinedExpression]:
    """A column as an expression, which no index has: the newest measurements come first, whatever else is asked."""
    return ExpressionWrapper(F(column) + 0, BigIntegerField())


def _measured(figure: Figure) -> ExpressionWrapper[CombinedExpression]:
    """A figure as an expression, for the same reason."""
    return ExpressionWrapper(F(figure.column) + 0.0, FloatField())


def _of_runs(asked: Search) -> list[Q]:
    holds = [in_label(text) for text in asked.values("label")]
    if names := asked.names("gpu"):
        holds.append(Q(gpu__name__in=names) | Q(gpu=None, device_name__in=names))
    if names := asked.names("host"):
        holds.append(Q(gpu__host__in=names))
    if names := asked.names("person"):
        holds.append(Q(user__username__in=names))
    if names := asked.names("tag"):
        holds.append(Q(pk__in=Run.tags.through.objects.filter(tag__name__in=names).values("run")))
    if numbers := asked.values("run"):
        holds.append(Q(pk__in=numbers))
    if states := asked.values("state"):
        holds.append(Q(state__in=states))
    holds += [Q(created_at__gte=_begin(day)) for day in asked.values("since")]
    holds += [Q(created_at__lt=_begin(day + timedelta(days=1))) for day in asked.values("until")]
    for quality in asked.values("quality"):
        if quality in ("contended", "uncontended"):
            holds.append(Q(contended=quality == "contended"))
        elif quality == "demo":
            holds.append(~Q(demo=""))
    return holds


def _begin(day: date) -> datetime:
    """Midnight, where the site is."""
    return timezone.make_aware(datetime.combine(day, time.min))


def _of_workloads(asked: Search) -> list[Q]:
    holds = []
    if names := asked.names("operation"):
        holds.append(Q(operation__in=names))
    if names := asked.names("dtype"):
        holds.append(Q(dtype__in=names))
    if shapes := asked.values("shape"):
        holds.append(reduce(or_, (Q(label__endswith=f" {one}") | Q(label__contains=f" {one} ") for one in shapes)))
    equal: dict[frozenset[str], Q] = {}
    for size in asked.values("size"):
        if size.sign == "=":
            equal[size.fields] = equal.get(size.fields, Q()) | _of_size(size)
        else:
            holds.append(_of_size(size))
    return [*holds, *equal.values()]


LOOKUPS = {"=": "", ">=": "__gte", "<=": "__lte", ">": "__gt", "<": "__lt"}


def _of_size(size: Size) -> Q:
    names = [f"sizes__{name}" for name in sorted(size.fields)]
    if size.sign == "!=":
        return reduce(or_, (Q(**{f"{name}__isnull": False}) & ~Q(**{name: size.value}) for name in names))
    return reduce(or_, (Q(**{f"{name}{LOOKUPS[size.sign]}": size.value}) for name in names))
