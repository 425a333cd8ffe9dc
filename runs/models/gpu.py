"""GPUs (and CPUs) as reported by their agents."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import Count, Q
from django.utils import timezone

from kernels import HARNESS_VERSION

SILENT_AFTER = timedelta(seconds=15)
"""Three missed hellos."""


class GpuQuerySet(models.QuerySet["Gpu"]):
    def online(self) -> GpuQuerySet:
        return self.filter(seen_at__gte=timezone.now() - SILENT_AFTER)

    def in_order(self) -> GpuQuerySet:
        """CUDA devices first, then by host and index."""
        return self.order_by(models.Case(models.When(kind="cuda", then=0), default=1), "host", "index", "id")

    def with_runs(self) -> GpuQuerySet:
        """Adds the number of runs, and of runs in progress."""
        there = Q(runs__state__in=("queued", "running"), runs__sent_at__isnull=False)
        return self.annotate(run_count=Count("runs"), at_work=Count("runs", filter=there))


class Gpu(models.Model):
    """One device on one host, by UUID. A CPU is a device of kind cpu."""

    uuid = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=10, choices=[("cuda", "CUDA GPU"), ("cpu", "CPU")])
    name = models.CharField(max_length=200)
    host = models.CharField(max_length=200, blank=True)
    index = models.IntegerField(default=0)
    capability = models.FloatField(null=True, blank=True)
    memory_bytes = models.BigIntegerField(null=True, blank=True)
    driver = models.CharField(max_length=100, blank=True)
    catalogue = models.JSONField(default=list, blank=True)
    """Kernels of its agent: [{"operation", "name", "backend", "doc", "why_not", ...}]."""
    active_attempts = models.JSONField(default=list, blank=True)
    """[run, attempt] pairs that its agent held at its last hello."""
    seen_at = models.DateTimeField(null=True, blank=True)

    objects = GpuQuerySet.as_manager()

    class Meta:
        verbose_name = "GPU"

    def __str__(self) -> str:
        return f"{self.name} ({self.place})"

    @property
    def place(self) -> str:
        """Host and index, as in "gpu-3 / 0"; only the host for a CPU."""
        return f"{self.host} / {self.index}" if self.kind == "cuda" else self.host

    @property
    def is_online(self) -> bool:
        return self.seen_at is not None and self.seen_at >= timezone.now() - SILENT_AFTER

    @property
    def state(self) -> str:
        """ "idle", "busy" or "silent". Counts of `with_runs` are newer than the device's own report."""
        if not self.is_online:
            return "silent"
        return "busy" if self.active_attempts or getattr(self, "at_work", 0) else "idle"

    def kernels(self, operation: str) -> list[dict[str, Any]]:
        return [k for k in self.catalogue if k["operation"] == operation]

    @property
    def ceilings(self) -> dict[str, Any] | None:
        """Ceilings with the present driver; None if the next run must measure them."""
        calibration = self.calibrations.filter(driver=self.driver).select_related("environment").first()
        return calibration.ceilings if calibration and not calibration.again else None


class Calibration(models.Model):
    """Measured ceilings of a device, one row per driver. The first run on the device measures them."""

    gpu = models.ForeignKey(Gpu, models.CASCADE, related_name="calibrations")
    driver = models.CharField(max_length=100, blank=True)
    ceilings = models.JSONField()
    """As kernels/analysis/ceilings.py computes them."""
    environment = models.ForeignKey("runs.Environment", models.PROTECT, null=True, related_name="+")
    run = models.ForeignKey("runs.Run", models.SET_NULL, null=True, related_name="+")
    """The run that measured them."""
    measured_at = models.DateTimeField()
    again_of = models.DateTimeField(null=True)
    """measured_at of ceilings to be replaced; newer ones clear the request."""

    class Meta:
        ordering = ["-measured_at"]
        constraints = [models.UniqueConstraint(fields=["gpu", "driver"], name="one_calibration_per_driver")]

    def __str__(self) -> str:
        return f"ceilings of {self.gpu} with driver {self.driver or 'none'}"

    @property
    def again(self) -> bool:
        """Whether the next run measures it again: on request, or because the harness changed. Until then its figures
        stay valid."""
        harness = self.environment.body.get("harness") if self.environment else HARNESS_VERSION
        return self.again_of == self.measured_at or harness != HARNESS_VERSION
