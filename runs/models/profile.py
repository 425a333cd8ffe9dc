"""Profiles: why a kernel was slow, stored at the result that it explains."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from django.db import models
from django.utils import timezone

from kernels.contract.profile import Profile
from runs.models.run import Run

if TYPE_CHECKING:
    from runs.models.measurement import Result


class KernelProfileManager(models.Manager["KernelProfile"]):
    def store(self, run: Run, result: Result, profile: Profile) -> KernelProfile:
        """The first profile of a result by a run stays as it is."""
        timeline = profile.timeline
        files: dict[str, Any] = {"table": "", "trace": None}
        if timeline:
            files = {"table": timeline.table, "trace": _bytes(timeline.trace) or None}
            profile = profile.model_copy(update={"timeline": timeline.model_copy(update={"table": "", "trace": ""})})
        body = profile.model_dump(mode="json", exclude_none=True)
        return self.get_or_create(run=run, result=result, defaults={"body": body} | files)[0]


def _bytes(trace: str) -> bytes:
    """The compressed trace; empty if it is none."""
    try:
        return base64.b64decode(trace, validate=True)
    except binascii.Error:
        return b""


class KernelProfile(models.Model):
    """One Profile (kernels/contract/profile.py). Its diagnosis is made when it is read: rules change."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="profiles")
    """The run that brought it; often another one than that of the result."""
    result = models.ForeignKey("Result", models.CASCADE, related_name="profiles")
    body = models.JSONField()
    """The Profile, without the profiler's table and the trace, which are large."""
    table = models.TextField(blank=True)
    """PyTorch's profiler's."""
    trace = models.BinaryField(null=True)
    """A Chrome trace, compressed with gzip."""
    created_at = models.DateTimeField(default=timezone.now)

    objects = KernelProfileManager()

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["run", "result"], name="profiled_once")]

    def __str__(self) -> str:
        return f"profile of result {self.result_id}"

    @property
    def profile(self) -> Profile:
        return Profile(**self.body)

    @property
    def with_table(self) -> Profile:
        profile = self.profile
        timeline = profile.timeline.model_copy(update={"table": self.table}) if profile.timeline else None
        return profile.model_copy(update={"timeline": timeline})
