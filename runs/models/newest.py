"""The newest result of each kernel on each terms: a small table beside a million results, for pages about who is best."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import models

from kernels.contract.arm_result import Status
from kernels.report.comparison import COMPARABILITY_KEYS
from runs.models.measurement import Measurement, Result
from runs.models.workload import Workload

READ = ("pk", "kernel", "kernel__name", "status", "confirmed")
"""Columns of a result that say on which terms it is."""


class NewestManager(models.Manager["Newest"]):
    def note(self, measurements: Sequence[Measurement]) -> None:
        """Makes the results of measurements the newest on their terms, in one statement."""
        results = Result.objects.filter(measurement__in=measurements).exclude(status=Status.UNSUPPORTED)
        by_measurement: dict[int, list[tuple[Any, ...]]] = {}
        for owner, *columns in results.values_list("measurement", *READ).order_by("pk"):
            by_measurement.setdefault(owner, []).append(tuple(columns))
        self.put(row for one in measurements for row in _rows(one, by_measurement.get(one.pk, [])))

    def rows_of(self, measurement: Measurement) -> list[Newest]:
        """The rows that its results would have."""
        results = measurement.results.exclude(status=Status.UNSUPPORTED)
        return _rows(measurement, list(results.values_list(*READ)))

    def put(self, rows: Iterable[Newest]) -> None:
        """Of several on the same terms, the last one."""
        fields = ["result", "workload", "confirmed"]
        self.bulk_create(
            {row.terms: row for row in rows}.values(),
            update_conflicts=True,
            unique_fields=["terms"],
            update_fields=fields,
        )


def _rows(measurement: Measurement, results: Iterable[tuple[Any, ...]]) -> list[Newest]:
    """results: READ of each."""
    run = measurement.run
    how = [measurement.protocol.get(key) for key in COMPARABILITY_KEYS] + ["contended"] * run.contended
    terms = [measurement.workload_id, run.gpu_id, run.demo, run.environment_id, measurement.mode, measurement.group]
    return [
        Newest(
            terms=_digest([kernel, *terms, measurement.baseline, confirmed, *how]),
            result_id=pk,
            workload_id=measurement.workload_id,
            confirmed=confirmed,
        )
        for pk, kernel, name, status, confirmed in results
        if measurement.mode != "verify" and (name != measurement.baseline or status == Status.OK)
    ]


def _digest(terms: list[Any]) -> str:
    return hashlib.sha256(repr(terms).encode()).hexdigest()[:32]


class Newest(models.Model):
    """One kernel on one workload, card, environment, mode, group, baseline and way of measuring; confirmed results, and
    those of contended runs, apart from others. Of a baseline, only results with a time. Results that no kernel supports, and
    mere checks, have no row."""

    terms = models.CharField(max_length=32, unique=True)
    """A hash of all of that."""
    workload = models.ForeignKey(Workload, models.CASCADE, related_name="+")
    result = models.OneToOneField(Result, models.CASCADE, related_name="newest")
    confirmed = models.BooleanField()

    objects = NewestManager()

    def __str__(self) -> str:
        return f"newest: {self.result}"
