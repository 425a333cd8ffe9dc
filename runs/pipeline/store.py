"""Stores a Measured event as rows, for recorder and importer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from kernels.analysis.processes import with_process
from kernels.contract.arm_result import ArmResult
from kernels.contract.events import Measured
from runs.models import Kernel, KernelVersion, Measurement, Newest, Result, Run, Workload
from runs.models.measurement import COLUMNS

SHARED = (
    "baseline", "margin", "aa", "aa_samples_ns", "protocol", "telemetry", "notes", "took_s", "timing", "isolated",
    "isolation",
)  # fmt: skip
"""Fields of a Measured with a column of the same name, beside its key."""


def json_of(value: Any) -> Any:
    """A value of an event for a column: models and tuples as JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return [json_of(item) for item in value] if isinstance(value, list | tuple) else value


def store_measured(run: Run, event: Measured) -> Measurement | None:
    """The new row with its results; None if the run has it already."""
    environment = run.environment.body if run.environment else {}
    event = with_process(event, environment.get("device", ""))
    measurement, new = Measurement.objects.get_or_create(
        run=run,
        workload=Workload.objects.of(event.workload),
        mode=event.mode,
        group=event.group,
        defaults={name: json_of(getattr(event, name)) for name in SHARED},
    )
    if not new:
        return None
    commit = (environment.get("commit") or "")[:50]
    for arm in event.results:
        _store_arm(measurement, event, arm, commit)
    Newest.objects.note(measurement)
    return measurement


def _store_arm(measurement: Measurement, event: Measured, arm: ArmResult, commit: str) -> None:
    kernel, _ = Kernel.objects.get_or_create(
        operation=event.workload.operation, name=arm.kernel, defaults={"backend": arm.backend}
    )
    version = None
    if arm.sha256 and arm.source:
        version, _ = KernelVersion.objects.get_or_create(
            kernel=kernel, sha256=arm.sha256, defaults={"source": arm.source, "commit": commit}
        )
    Result.objects.create(
        measurement=measurement,
        kernel=kernel,
        version=version,
        **{name: json_of(getattr(arm, name)) for name in COLUMNS},
    )
