"""Workloads: measured or requested."""

from __future__ import annotations

from typing import Any

from django.db import models

from kernels.workload import Workload as WorkloadSpec


class WorkloadManager(models.Manager["Workload"]):
    def of(self, spec: WorkloadSpec) -> Workload:
        row, _ = self.get_or_create(
            key=spec.key,
            defaults={"operation": spec.operation, "dtype": spec.dtype, "sizes": spec.sizes, "label": spec.label},
        )
        return row


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
