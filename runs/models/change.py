"""Changes: where a kernel's time on a workload and a card moved to another level."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from kernels.analysis.changes import Change as Verdict
from runs.models.gpu import Gpu
from runs.models.kernel import Kernel
from runs.models.run import Run
from runs.models.workload import Workload


class Change(models.Model):
    """One change of a line. Found when a run ends; only its acknowledgement is a person's.

    Times are p50 in ms. `ratio` is after over before: above 1 is slower; low and high are its 99% interval.
    """

    kernel = models.ForeignKey(Kernel, models.CASCADE, related_name="changes")
    workload = models.ForeignKey(Workload, models.CASCADE, related_name="+")
    gpu = models.ForeignKey(Gpu, models.CASCADE, related_name="+")
    mode = models.CharField(max_length=10)
    run = models.ForeignKey(Run, models.CASCADE, related_name="changes")
    """The first run at the new level."""
    before = models.ForeignKey(Run, models.CASCADE, related_name="+")
    """The run before it."""
    at = models.DateTimeField()
    found_at = models.DateTimeField(default=timezone.now, db_index=True)
    """When the site found it: a change is certain only some runs after it."""
    verdict = models.CharField(max_length=20, choices=[(one.value, one.value) for one in Verdict])
    ratio = models.FloatField()
    low = models.FloatField()
    high = models.FloatField()
    t = models.FloatField()
    runs_before = models.IntegerField()
    runs_after = models.IntegerField()
    level_before_ms = models.FloatField()
    level_after_ms = models.FloatField()
    facts = models.JSONField(default=list, blank=True)
    """What else changed at this run: [[name, before, after], ...]."""
    rule = models.JSONField(default=dict, blank=True)
    """Parameters of the rule that found it."""

    note = models.TextField(blank=True, max_length=2000)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)

    class Meta:
        ordering = ["-at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["kernel", "workload", "gpu", "mode", "run"], name="one_change_at_a_run")
        ]

    def __str__(self) -> str:
        return f"{self.kernel.name} on {self.workload.label}: {self.verdict}"

    def acknowledge(self, user: Any, note: str) -> None:
        """Begins a new level at its run: nothing after it is compared with what was before."""
        self.note, self.acknowledged_by, self.acknowledged_at = note, user, timezone.now()
        self.save(update_fields=["note", "acknowledged_by", "acknowledged_at"])
