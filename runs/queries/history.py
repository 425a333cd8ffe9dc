"""A kernel's results from run to run, as series of comparable results.

A series ends where workload, card, environment, mode, protocol, baseline or its source changes; series are never mixed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Max, OuterRef, QuerySet, Subquery

from kernels.contract.arm_result import ArmResult, Status, Verdict
from kernels.contract.environment import KEYED
from kernels.contract.events import Measured
from kernels.report.comparison import COMPARABILITY_KEYS
from runs.models import Environment, Gpu, Kernel, Result, Workload
from runs.queries.ratio import Ratio

MOST_RESULTS = 2000
"""Number of newest results read for a page."""
FIELDS = (
    "workload", "workload_key", "mode", "kernel", "series", "run", "result", "measured_at", "status", "verdict", "speedup",
    "speedup_low", "speedup_high", "margin", "rounds", "p50_ms", "p50_low_ms", "p50_high_ms", "baseline",
    "baseline_p50_ms", "sha256", "baseline_sha256", "card", *KEYED, "fingerprint", "sample",
)  # fmt: skip
NAMES = {"cuda": "CUDA", "cudnn": "cuDNN", "triton": "Triton"}
READ = {
    "pk": "pk", "kernel": "kernel__name", "limit_ms": "limit_ms",
    "status": "status", "verdict": "verdict", "why": "why", "n": "n", "rounds": "rounds", "p50_ms": "p50_ms",
    "p50_low_ms": "p50_low_ms", "p50_high_ms": "p50_high_ms", "speedup": "speedup", "speedup_low": "speedup_low",
    "speedup_high": "speedup_high", "paired": "paired", "version": "version", "sha256": "version__sha256",
    "mode": "measurement__mode", "group": "measurement__group", "baseline": "measurement__baseline",
    "margin": "measurement__margin", "workload": "measurement__workload",
    "run": "measurement__run", "created_at": "measurement__run__created_at", "gpu": "measurement__run__gpu",
    "started_at": "measurement__run__started_at", "environment": "measurement__run__environment",
    "sample": "measurement__run__sample", "contended": "measurement__run__contended",
}  # fmt: skip
"""Fields of each result, by their name in Point."""


@dataclass(frozen=True, slots=True)
class Point:
    """One result of a history. Not a model row: thousands are read at a time."""

    pk: int
    kernel: str
    limit_ms: float | None
    """Speed of light: least time in ms that the device needs for the work."""
    status: str
    verdict: str
    why: str
    n: int | None
    rounds: int | None
    p50_ms: float | None
    p50_low_ms: float | None
    p50_high_ms: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    paired: bool
    version: int | None
    sha256: str | None
    mode: str
    group: str
    baseline: str
    margin: float
    workload: int
    run: int
    created_at: datetime
    gpu: int | None
    started_at: datetime | None
    environment: int
    sample: str
    contended: bool
    base_sha256: str | None
    base_p50_ms: float | None
    how: tuple[Any, ...]
    """Protocol values that must agree: kernels.report.comparison.COMPARABILITY_KEYS."""

    @property
    def ratio(self) -> Ratio | None:
        """Its paired speedup; None without one, or if its correctness is unknown."""
        if self.status != "ok" or not self.paired or self.verdict == Verdict.UNKNOWN:
            return None
        if self.speedup is None or self.speedup_low is None or self.speedup_high is None:
            return None
        return Ratio(self.speedup, self.speedup_low, self.speedup_high, self.margin)


class Terms(NamedTuple):
    """What must agree within a series."""

    workload: int
    mode: str
    group: str
    baseline: str
    baseline_sha256: str
    card: str
    fingerprint: str
    how: tuple[Any, ...]


@dataclass
class Series:
    """Results on one workload with the same terms, newest first."""

    terms: Terms
    workload: Workload
    environment: dict[str, Any]
    gpu: Gpu | None
    points: list[Point] = field(default_factory=list)
    number: int = 1
    """1 for the newest series on its workload."""

    @property
    def newest(self) -> Point:
        return self.points[0]

    @property
    def drawn(self) -> list[tuple[Point, Ratio]]:
        """Points with a speedup, oldest first."""
        return [(point, ratio) for point in reversed(self.points) if (ratio := point.ratio) is not None]

    @property
    def facts(self) -> dict[str, str]:
        """The terms in words, without workload and device name."""
        known = {NAMES.get(key, key): str(self.environment.get(key) or "") for key in KEYED if key != "device"}
        how = dict(zip(COMPARABILITY_KEYS, self.terms.how, strict=True))
        known |= {"mode": self.terms.mode, "in pairs": "no" if how["paired"] is False else ""}
        known["rests"] = "" if how["rest"] is None else f"{how['rest']:g}"
        over = f"{self.terms.baseline} {self.terms.baseline_sha256[:7]}".strip()
        return {"card": self.gpu.place if self.gpu else "unknown"} | known | {"over": over}


def measured(kernel: Kernel | None = None) -> QuerySet[Result]:
    """Results of a kernel, or all; without unsupported ones, and without checks that have no times."""
    found = Result.objects.all() if kernel is None else Result.objects.filter(kernel=kernel)
    return found.exclude(status="unsupported").exclude(measurement__mode="verify")


def tells(measured: Measured, arm: ArmResult) -> bool:
    """Whether a result belongs to a history."""
    return arm.status != Status.UNSUPPORTED and measured.mode != "verify"


def devices(kernel: Kernel | None = None) -> dict[str, list[int]]:
    """Device names with results (of the kernel, or all), latest first, with their environments."""
    where = measured(kernel).order_by().values_list("measurement__run__environment")
    last = {pk: run for pk, run in where.annotate(last=Max("measurement__run")) if pk is not None}
    known = Environment.objects.in_bulk(last)
    found: dict[str, list[int]] = {}
    for pk in sorted(last, key=lambda pk: -last[pk]):
        found.setdefault(known[pk].body.get("device") or "", []).append(pk)
    return found


def series(kernel: Kernel, environments: Iterable[int], key: str = "", most: int | None = None) -> list[Series]:
    """Series of a kernel in these environments, by workload from small to large; newest first within a workload.

    most: number of newest results read.
    """
    found = measured(kernel).filter(measurement__run__environment__in=environments)
    if key:
        found = found.filter(measurement__workload__key=key)
    return grouped(found.order_by("-measurement__run", "pk"), most)


def grouped(found: QuerySet[Result], most: int | None = None) -> list[Series]:
    """Groups results into series, in their order."""
    baseline = Result.objects.filter(
        measurement=OuterRef("measurement"), kernel__name=OuterRef("measurement__baseline")
    )
    more = {
        "base_sha256": Subquery(baseline.values("version__sha256")[:1]),
        "base_p50_ms": Subquery(baseline.values("p50_ms")[:1]),
    }
    names, how = [*READ, *more], [f"measurement__protocol__{key}" for key in COMPARABILITY_KEYS]
    read = found.annotate(**more).values_list(*READ.values(), *more, *how)[:most]
    points = [Point(**dict(zip(names, values, strict=False)), how=values[len(names) :]) for values in read]
    known = Environment.objects.in_bulk({point.environment for point in points})
    workloads = Workload.objects.in_bulk({point.workload for point in points})
    gpus = Gpu.objects.defer("catalogue").in_bulk({point.gpu for point in points if point.gpu})
    made: dict[Terms, Series] = {}
    for point in points:
        environment, gpu = known[point.environment], gpus.get(point.gpu or 0)
        terms = _terms(point, environment.fingerprint, gpu)
        one = made.setdefault(terms, Series(terms, workloads[point.workload], environment.body, gpu))
        one.points.append(point)
    return _numbered(sorted(made.values(), key=_size))


def _terms(point: Point, fingerprint: str, gpu: Gpu | None) -> Terms:
    """The terms of a result. The card of a demo run is unknown: each demo run is its own series."""
    card = gpu.uuid if gpu and not point.sample else f"of run {point.run}"
    sha256 = point.base_sha256 or ""
    return Terms(point.workload, point.mode, point.group, point.baseline, sha256, card, fingerprint, point.how)


def _size(one: Series) -> tuple[Any, ...]:
    """Sort key: dtype and sizes; newest first within a workload."""
    workload = one.workload
    sizes = [(str(type(value)), value) for value in workload.sizes.values() if isinstance(value, int | float)]
    return workload.dtype, sizes, workload.label, -one.newest.run


def _numbered(found: list[Series]) -> list[Series]:
    counts: dict[int, int] = {}
    for one in found:
        counts[one.terms.workload] = one.number = counts.get(one.terms.workload, 0) + 1
    return found


def rows(found: Iterable[Series], kernel: str) -> list[dict[str, Any]]:
    """One row of FIELDS per result. None: unknown."""
    return [_row(one, point) | {"kernel": kernel} for one in found for point in one.points]


def _row(one: Series, point: Point) -> dict[str, Any]:
    return {
        "workload": one.workload.label,
        "workload_key": one.workload.key,
        "mode": point.mode,
        "series": one.number,
        "run": point.run,
        "result": point.pk,
        "measured_at": (point.started_at or point.created_at).isoformat(),
        "status": point.status,
        "verdict": point.verdict,
        "speedup": point.speedup,
        "speedup_low": point.speedup_low,
        "speedup_high": point.speedup_high,
        "margin": point.margin,
        "rounds": point.rounds,
        "p50_ms": point.p50_ms,
        "p50_low_ms": point.p50_low_ms,
        "p50_high_ms": point.p50_high_ms,
        "baseline": point.baseline,
        "baseline_p50_ms": point.base_p50_ms,
        "sha256": point.sha256,
        "baseline_sha256": point.base_sha256,
        "card": one.gpu.uuid if one.gpu else None,
        **{key: one.environment.get(key) for key in KEYED},
        "fingerprint": one.terms.fingerprint,
        "sample": bool(point.sample),
    }
