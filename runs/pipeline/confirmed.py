"""Which results are confirmed. It is decided when they are stored, and again when a second opinion comes or goes."""

from __future__ import annotations

from collections.abc import Iterable

from kernels.analysis.confirmation import ENOUGH, THOROUGH, is_thorough, is_too_short
from kernels.analysis.statistics import WIDEST_MARGIN
from kernels.contract.arm_result import Status
from runs.models import Measurement, Newest, Result
from runs.queries import opinions
from runs.queries.points import Point

MOST_LOOKED_AT = 1000
"""Older measurements that are looked at, to find what was the newest before; and results that one opinion is about."""


def settle(measurements: Iterable[Measurement]) -> None:
    """Decides it for the results of measurements, and for those that they are a second opinion of."""
    for one in measurements:
        if not is_thorough(one.protocol.get("processes")):
            continue
        if not one.run.withdrawn_at:
            _settle(one)
        if one.isolated:
            for other in _judged_by(one):
                _settle(other)


def _settle(measurement: Measurement) -> None:
    results = list(measurement.results.select_related("kernel", "version").defer("samples_ns", "log"))
    known: dict[opinions.Key, Point] = {}
    if not measurement.isolated:
        names = [one.kernel.name for one in results]
        known = opinions.isolated(_place(measurement), names)
    changed = [one for one in results if one.confirmed != _is_confirmed(one, measurement, known)]
    if changed:
        _change(measurement, changed)


def _is_confirmed(result: Result, measurement: Measurement, known: dict[opinions.Key, Point]) -> bool:
    if result.status != Status.OK or measurement.run.contended or measurement.margin > WIDEST_MARGIN:
        return False
    if is_too_short(result.why):
        return False
    if measurement.isolated or result.kernel.name == measurement.baseline:
        return True
    second = known.get(opinions.key_of(result.kernel.name, result.version.sha256 if result.version else None))
    return opinions.said(result.speedup_low, second) in ENOUGH


def _change(measurement: Measurement, results: list[Result]) -> None:
    """Turns the answer round, and keeps the newest results of either answer."""
    held = Newest.objects.filter(result__in=results)
    missing = set(held.values_list("terms", flat=True))
    held.delete()
    for one in results:
        one.confirmed = not one.confirmed
    Result.objects.bulk_update(results, ["confirmed"])
    put_older(measurement, missing)
    put_newer(measurement)


def put_newer(measurement: Measurement) -> None:
    """Notes the results of a measurement where nothing newer is noted."""
    rows = Newest.objects.rows_of(measurement)
    there = dict(Newest.objects.filter(terms__in=[row.terms for row in rows]).values_list("terms", "result"))
    Newest.objects.put(row for row in rows if there.get(row.terms, 0) < row.result_id)


def put_older(measurement: Measurement, missing: set[str]) -> None:
    """Gives each of these terms, which results of a measurement held, the newest result that is left."""
    run = measurement.run
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


def _judged_by(measurement: Measurement) -> Iterable[Measurement]:
    """The thorough measurements in the shared process that an isolated one says something about."""
    kernels = measurement.results.exclude(kernel__name=measurement.baseline).values("kernel")
    place = _place(measurement)
    rows = Measurement.objects.filter(
        workload=measurement.workload_id, isolated=False, protocol__processes__gte=THOROUGH, run__withdrawn_at=None,
        run__demo=place.demo, run__gpu=place.gpu, run__environment__fingerprint=place.fingerprint,
        pk__in=Result.objects.filter(kernel__in=kernels).order_by().values("measurement"),
    )  # fmt: skip
    return rows.select_related("run__environment", "workload").order_by("-pk")[:MOST_LOOKED_AT]


def _place(measurement: Measurement) -> opinions.Place:
    run = measurement.run
    fingerprint = run.environment.fingerprint if run.environment else ""
    return opinions.Place(measurement.workload.key, run.gpu_id, fingerprint, run.demo)
