"""What a team decides about a workload on a device: the tier that it wants, and the baseline that it watches."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from kernels.analysis.statistics import MARGIN
from runs.models.run import Run
from runs.models.workload import Workload


class OfAPlace(models.Model):
    """A workload in one mode, on devices of one name."""

    workload = models.ForeignKey(Workload, models.CASCADE, related_name="+")
    device = models.CharField(max_length=200)
    mode = models.CharField(max_length=20)

    class Meta:
        abstract = True

    @property
    def place(self) -> tuple[int, str, str]:
        return self.workload_id, self.mode, self.device


class Target(OfAPlace):
    """The factor over the baseline that is wanted, by whom, until when."""

    factor = models.FloatField()
    tier = models.CharField(max_length=60, blank=True)
    """The tier that it was chosen from, with scale and version; empty for a factor of one's own."""
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="targets")
    due = models.DateField(null=True, blank=True)
    pin = models.ForeignKey("Pin", models.SET_NULL, null=True, blank=True, related_name="+")
    """The pinned baseline of its place; none: its time is that of the newest baseline over the factor."""
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["due", "id"]
        constraints = [models.UniqueConstraint(fields=["workload", "device", "mode"], name="one_target_of_a_place")]

    def __str__(self) -> str:
        return f"{self.factor:g}x on {self.workload.label}, {self.device}"


class Pin(OfAPlace):
    """A time of the baseline that later ones are compared with. Times are p50 in ms, with its 99% interval."""

    kernel = models.CharField(max_length=100)
    p50_ms = models.FloatField()
    p50_low_ms = models.FloatField()
    p50_high_ms = models.FloatField()
    margin = models.FloatField(default=MARGIN)
    """Of its measurement: what A/A said is noise."""
    run = models.ForeignKey(Run, models.SET_NULL, null=True, related_name="+")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workload", "device", "mode"], name="one_pin_of_a_place")]

    def __str__(self) -> str:
        return f"{self.kernel} on {self.workload.label}, {self.device}"

    def keep(self) -> None:
        """Takes the place of the pin that was there; a target there counts from it."""
        place = {"workload": self.workload, "device": self.device, "mode": self.mode}
        Pin.objects.filter(**place).delete()
        self.save()
        Target.objects.filter(**place).update(pin=self)
