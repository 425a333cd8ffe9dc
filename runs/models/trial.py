"""Trials of a search for settings, as its agent reported them: kernels/contract/search.py."""

from __future__ import annotations

from django.db import models

from runs.models.run import Run


class Trial(models.Model):
    """One trial; of a finalist, also what new processes confirmed."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="trials")
    number = models.IntegerField()
    body = models.JSONField()
    confirmed = models.JSONField(null=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="one_trial_of_a_number")]

    def __str__(self) -> str:
        return f"trial {self.number} of run {self.run_id}"
