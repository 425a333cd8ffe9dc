"""GPUs (and CPUs) as reported by their agents."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.db.models import Count, Q
from django.utils import timezone

from kernels import HARNESS_VERSION
from runs.messages import agent_pulses, ask_dispatch

if TYPE_CHECKING:
    from django.contrib.auth.models import User

SILENT_AFTER = timedelta(seconds=15)
"""Three missed hellos."""
CLOCK_IS_RIGHT_S = 30.0


class GpuQuerySet(models.QuerySet["Gpu"]):
    def online(self) -> GpuQuerySet:
        return self.filter(seen_at__gte=timezone.now() - SILENT_AFTER)

    def taking_runs(self) -> GpuQuerySet:
        return self.online().filter(paused_at=None)

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
    max_sm_mhz = models.FloatField(null=True, blank=True)
    """Maximum SM clock as its driver reports it."""
    catalogue = models.JSONField(default=list, blank=True)
    """Kernels of its agent: [{"operation", "name", "backend", "doc", "why_not", ...}]."""
    no_submissions = models.TextField(null=True, blank=True)
    """Why its agent runs no submitted kernel, as it said; empty if it does, None if it has not said."""
    sandbox = models.JSONField(null=True, blank=True)
    """What its host takes from a kernel's own process: fields of Isolation, and whether its owner trusts all kernels
    anyway. None: its agent has not said."""
    no_counters = models.TextField(null=True, blank=True)
    """Why a profile here has no hardware counters, as its agent said; empty if it has. None: its agent cannot profile."""
    active_attempts = models.JSONField(default=list, blank=True)
    """[run, attempt] pairs that its agent held at its last hello."""
    seen_at = models.DateTimeField(null=True, blank=True)
    clock_ahead_s = models.FloatField(default=0.0)
    """Its agent's clock, compared with the site's, at its last hello."""

    foreign = models.IntegerField(null=True, blank=True)
    """Foreign processes on it when its agent last had no run; None: unknown, as for a CPU."""
    paused_at = models.DateTimeField(null=True, blank=True)
    """Since when it takes no run; the one in progress goes on."""
    paused_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    paused_why = models.CharField(max_length=200, blank=True)

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

    @cached_property
    def is_unheard(self) -> bool:
        """Its agent works, and the site does not hear it: the recorder does not store what it says."""
        return not self.is_online and agent_pulses(self.uuid)

    @property
    def state(self) -> str:
        """ "idle", "busy", "paused", "silent" or "unheard". Counts of `with_runs` are newer than the device's own report."""
        if not self.is_online:
            return "unheard" if self.is_unheard else "silent"
        if self.active_attempts or getattr(self, "at_work", 0):
            return "busy"
        return "paused" if self.paused_at else "idle"

    def pause(self, user: User | None, why: str) -> None:
        """It takes no run from now on. The one in progress goes on."""
        Gpu.objects.filter(pk=self.pk, paused_at=None).update(paused_at=timezone.now(), paused_by=user, paused_why=why)

    def resume(self) -> None:
        Gpu.objects.filter(pk=self.pk).update(paused_at=None, paused_by=None, paused_why="")
        ask_dispatch()

    @property
    def clock_error_s(self) -> float:
        """Seconds to take off its agent's times; 0 for a clock that is about right."""
        return self.clock_ahead_s if abs(self.clock_ahead_s) > CLOCK_IS_RIGHT_S else 0.0

    @property
    def why_no_submissions(self) -> str:
        """Why no submitted kernel runs here, as a sentence; empty if they do."""
        if self.no_submissions is None:
            return "its agent has not said that it takes submitted kernels: update the repository on its host"
        return self.no_submissions

    def kernels(self, operation: str) -> list[dict[str, Any]]:
        return [k for k in self.catalogue if k["operation"] == operation]

    @property
    def calibration(self) -> Calibration | None:
        """Its ceilings with the present driver, also those that the next run measures again."""
        return self.calibrations.filter(driver=self.driver).select_related("environment").first()

    @property
    def ceilings(self) -> dict[str, Any] | None:
        """Ceilings with the present driver; None if the next run must measure them."""
        calibration = self.calibration
        return calibration.ceilings if calibration and not calibration.again else None


class Calibration(models.Model):
    """Measured ceilings of a device, one row per driver. Runs on the device measure them until it was quiet once."""

    gpu = models.ForeignKey(Gpu, models.CASCADE, related_name="calibrations")
    driver = models.CharField(max_length=100, blank=True)
    ceilings = models.JSONField()
    """As kernels/analysis/ceilings.py computes them; empty if it was never quiet."""
    environment = models.ForeignKey("runs.Environment", models.PROTECT, null=True, related_name="+")
    run = models.ForeignKey("runs.Run", models.SET_NULL, null=True, related_name="+")
    """The run that measured them."""
    measured_at = models.DateTimeField()
    again_of = models.DateTimeField(null=True)
    """measured_at of ceilings to be replaced; newer ones clear the request."""
    refused = models.TextField(blank=True)
    """Why the last attempt was refused, as a sentence; empty if it was not."""
    refused_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-measured_at"]
        constraints = [models.UniqueConstraint(fields=["gpu", "driver"], name="one_calibration_per_driver")]

    def __str__(self) -> str:
        return f"ceilings of {self.gpu} with driver {self.driver or 'none'}"

    @property
    def again(self) -> bool:
        """Whether the next run measures it again: on request, because the device was busy, because it has no intervals, or
        because the harness changed. Until then its figures are shown, and nothing is compared with them."""
        harness = self.environment.body.get("harness") if self.environment else HARNESS_VERSION
        doubtful = bool(self.refused) or not self.ceilings.get("intervals")
        return doubtful or self.again_of == self.measured_at or harness != HARNESS_VERSION
