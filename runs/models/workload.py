"""Workloads: measured or requested."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import models

from kernels.workload import Workload as WorkloadSpec


class WorkloadManager(models.Manager["Workload"]):
    def of(self, spec: WorkloadSpec) -> Workload:
        return self.of_each([spec])[spec.key]

    def of_each(self, specs: Iterable[WorkloadSpec]) -> dict[str, Workload]:
        """By key. Those that are missing are made; another process may do the same."""
        wanted = {spec.key: spec for spec in specs}
        found = {row.key: row for row in self.filter(key__in=wanted)}
        if new := [_row(spec) for key, spec in wanted.items() if key not in found]:
            self.bulk_create(new, ignore_conflicts=True)
            found |= {row.key: row for row in self.filter(key__in=[row.key for row in new])}
        return found


def _row(spec: WorkloadSpec) -> Workload:
    return Workload(key=spec.key, operation=spec.operation, dtype=spec.dtype, sizes=spec.sizes, label=spec.label)


class Workload(models.Model):
    """An operation with a dtype and sizes. Canonical: one workload has one row."""

    key = models.CharField(max_length=16, unique=True)
    operation = models.CharField(max_length=50)
    dtype = models.CharField(max_length=20)
    sizes = models.JSONField()
    label = models.CharField(max_length=200)

    objects = WorkloadManager()

    def __str__(self) -> str:
        return self.label

    def as_json(self) -> dict[str, Any]:
        return {"operation": self.operation, "dtype": self.dtype, "sizes": self.sizes}
