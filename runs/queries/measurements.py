"""Reads rows as the events that they came from, for pages, charts, exports and commands.

The recorder has validated them; they are not validated again, because a page reads hundreds of results.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Prefetch, QuerySet
from pydantic import Field

from kernels.analysis.verdicts import verdict
from kernels.contract.arm_result import ArmResult, ColdCalls, Correctness, CrossCheck, Ratio, Spread, Status, Verdict
from kernels.contract.events import Measured, ProtocolFacts, TelemetrySummary
from kernels.contract.export import Export
from kernels.workload import Workload as WorkloadSpec
from runs.models import Measurement, Result, Run
from runs.models.measurement import COLUMNS, CORRELATED, CORRELATED_ROUNDS

RAW = ("samples_ns", "log")
"""Large columns of a result, read only on request. A kernel's source is another."""
NESTED: dict[str, Any] = {"correctness": Correctness, "cold": ColdCalls, "sm_mhz": Spread, "crosscheck": CrossCheck}


class StoredArm(ArmResult):
    """An ArmResult read from rows, with row ids."""

    pk: int = Field(exclude=True)
    verdict: Verdict | Status = Field(exclude=True)

    @property
    def is_correlated(self) -> bool:
        """Whether autocorrelation clearly reduces its number of rounds."""
        rounds, size = self.rounds or 0, self.effective_sample_size
        return size is not None and rounds >= CORRELATED_ROUNDS and size < CORRELATED * rounds


class StoredMeasured(Measured):
    """A Measured read from rows, with row ids."""

    pk: int = Field(exclude=True)
    label: str = Field(exclude=True)
    """Label of the workload as first stored: its operation may no longer exist."""
    results: list[StoredArm]  # type: ignore[assignment]

    def arm(self, kernel: str) -> StoredArm | None:
        return next((arm for arm in self.results if arm.kernel == kernel), None)


def of_run(run: Run, raw: bool = False) -> list[StoredMeasured]:
    """Measurements of a run, in the order of its config.

    raw: with samples, logs and sources.
    """
    order = {workload.key: number for number, workload in enumerate(run.spec.workloads)}
    found = _read(Measurement.objects.filter(run=run), Result.objects.all(), raw)
    return sorted(found, key=lambda m: (order.get(m.key, len(order)), m.pk))


def of_result(run: int, result: int) -> tuple[Run, StoredMeasured, StoredArm] | None:
    """(run, measurement with the baseline's result, result), with raw data; None if the result does not exist."""
    rows = Result.objects.select_related("kernel", "version")
    row = rows.select_related("measurement__workload", "measurement__run__gpu", "measurement__run__environment")
    found = row.filter(pk=result, measurement__run=run).first()
    if found is None:
        return None
    measurement = found.measurement
    beside = rows.filter(measurement=measurement, kernel__name=measurement.baseline).exclude(pk=result).defer("log")
    measured = _measured(measurement, [*beside, found], raw=True)
    return measurement.run, measured, measured.results[-1]


def of_results(pks: Iterable[int]) -> dict[int, tuple[StoredMeasured, StoredArm]]:
    """Single results with their measurements, by row id."""
    rows = Result.objects.filter(pk__in=list(pks)).select_related("kernel", "version", "measurement__workload")
    rows = rows.defer(*RAW, "version__source", "measurement__aa_samples_ns")
    found = {}
    for row in rows:
        measured = _measured(row.measurement, [row], raw=False)
        found[row.pk] = measured, measured.results[0]
    return found


def export_of(run: Run) -> Export:
    """All data of a run, including raw samples: another site can load it."""
    environment = run.environment
    return Export(
        title=run.title,
        config=run.spec,
        measured_at=(run.started_at or run.created_at).replace(microsecond=0),
        environment=environment.body if environment else {},
        fingerprint=environment.fingerprint if environment else "",
        preflight=run.preflight or {},
        state=run.state,
        measurements=list(of_run(run, raw=True)),
    )


# --- from rows to events ----------------------------------------------------------------------------------------------


def _read(measurements: QuerySet[Measurement], results: QuerySet[Result], raw: bool) -> list[StoredMeasured]:
    arms = results.select_related("kernel", "version")
    rows = measurements.select_related("workload")
    if not raw:
        arms, rows = arms.defer(*RAW, "version__source"), rows.defer("aa_samples_ns")
    return [_measured(row, row.results.all(), raw) for row in rows.prefetch_related(Prefetch("results", arms))]


def _measured(row: Measurement, arms: Iterable[Result], raw: bool) -> StoredMeasured:
    spec = WorkloadSpec.model_construct(**row.workload.as_json())
    spec.__dict__ |= {"key": row.workload.key, "label": row.workload.label}
    return StoredMeasured.model_construct(
        pk=row.pk,
        label=row.workload.label,
        workload=spec,
        key=row.workload.key,
        mode=row.mode,
        group=row.group,
        process=row.process,
        isolated=row.isolated,
        baseline=row.baseline,
        margin=row.margin,
        aa=Ratio(*row.aa) if row.aa else None,
        aa_samples_ns=row.aa_samples_ns if raw else None,
        protocol=ProtocolFacts.model_validate(row.protocol),
        telemetry=TelemetrySummary.model_validate(row.telemetry),
        notes=row.notes,
        took_s=row.took_s,
        results=[_arm(row, arm, raw) for arm in arms],
    )


BLANK = StoredArm.model_construct(kernel="", pk=0, verdict=Verdict.NONE)
"""Copied for each row, which takes a tenth of the time that a model needs to be made."""


def _arm(row: Measurement, arm: Result, raw: bool) -> StoredArm:
    columns = arm.__dict__  # what was read: the rest is deferred
    fields = {name: columns[name] for name in COLUMNS if name in columns}
    for name, model in NESTED.items():
        if fields.get(name) is not None:
            fields[name] = model.model_validate(fields[name])
    fields |= {"pk": arm.pk, "status": Status(arm.status), "kernel": arm.kernel.name, "backend": arm.kernel.backend}
    fields["ran"] = [(name, ns) for name, ns in arm.ran]
    if arm.version:
        fields |= {"sha256": arm.version.sha256, "source": arm.version.source if raw else ""}
    found = BLANK.model_copy(update=fields)
    found.__dict__["verdict"] = verdict(found, row.baseline, row.margin)
    return found
