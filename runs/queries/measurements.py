"""Reads rows as the events that they came from, for pages, charts, exports and commands.

The recorder has validated them; they are not validated again, because a page reads hundreds of results.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Prefetch, Q, QuerySet, Subquery
from django.db.models.fields.json import KeyTransform
from pydantic import Field

from kernels.analysis.statistics import WIDEST_MARGIN
from kernels.analysis.verdicts import verdict, why_undecided
from kernels.catalog import AT
from kernels.contract.arm_result import (
    NO_SPEEDUP,
    ArmResult,
    ColdCalls,
    Correctness,
    CrossCheck,
    Ratio,
    Spread,
    Status,
    Verdict,
    assignments,
)
from kernels.contract.events import EAGER_LAUNCH, Measured, ProtocolFacts, TelemetrySummary, without_false_ratios
from kernels.contract.export import Export
from kernels.contract.isolation import Isolation
from kernels.contract.profile import Profile
from kernels.protocol import Protocol
from kernels.workload import Workload as WorkloadSpec
from runs.models import Gpu, Kernel, KernelProfile, Measurement, Result, Run
from runs.models.measurement import COLUMNS, CORRELATED, CORRELATED_ROUNDS
from runs.queries.point_rows import baselines_of, tried

RAW = ("samples_ns", "log")
"""Large columns of a result, read only on request. A kernel's source is another."""
LARGE = (
    "version__source", "measurement__aa_samples_ns", "measurement__timing", "measurement__run__config",
    "measurement__run__log", "measurement__run__preflight", "measurement__run__timing", "measurement__run__gpu__catalogue",
    "measurement__run__gpu__active_attempts",
)  # fmt: skip
"""The same of what stands around a result, in lists of many runs."""
NESTED: dict[str, Any] = {"correctness": Correctness, "cold": ColdCalls, "sm_mhz": Spread, "crosscheck": CrossCheck}


class StoredArm(ArmResult):
    """An ArmResult read from rows, with row ids."""

    pk: int = Field(exclude=True)
    verdict: Verdict | Status = Field(exclude=True)
    is_confirmed: bool = Field(default=False, exclude=True)
    was_profiled: bool = Field(False, exclude=True)
    """Whether it has a profile, or a run that makes one: read with a single result only."""
    profile: Profile | None = Field(None, exclude=True)
    """The newest, if it was asked for."""

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

    @property
    def why_undecided(self) -> str:
        """Why nothing is decided here; empty if something may be."""
        return why_undecided(self)

    @property
    def apart(self) -> str:
        """How it differs from the other measurement of its workload in the same run; empty: it is the usual one."""
        variables = next((arm.environment for arm in self.results if arm.environment), {})
        said = [f"in a process with {assignments(variables)}"] if variables else []
        if self.group.endswith(EAGER_LAUNCH):
            said.append("launched call by call")
        return ", ".join(said)

    def arm(self, kernel: str) -> StoredArm | None:
        return next((arm for arm in self.results if arm.kernel == kernel), None)


def of_run(run: Run, raw: bool = False) -> list[StoredMeasured]:
    """Measurements of a run, in the order of its config. raw: with samples, logs and sources."""
    order = {workload.key: number for number, workload in enumerate(run.spec.workloads)}
    measured = _read(Measurement.objects.filter(run=run), Result.objects.all(), raw)
    return sorted(measured, key=lambda m: (order.get(m.key, len(order)), m.pk))


def of_runs(runs: Iterable[Run]) -> dict[int, list[StoredMeasured]]:
    """The same of several runs, by row id, in as many queries as for one."""
    found: dict[int, list[StoredMeasured]] = {run.pk: [] for run in runs}
    arms = Result.objects.select_related("kernel", "version").defer(*RAW, "version__source")
    rows = (
        Measurement.objects.filter(run__in=list(found)).select_related("workload").defer("aa_samples_ns").order_by("pk")
    )
    for row in rows.prefetch_related(Prefetch("results", arms)):
        found[row.run_id].append(_measured(row, row.results.all(), raw=False))
    return found


def of_result(run: int, result: int) -> tuple[Run, StoredMeasured, StoredArm] | None:
    """(run, measurement with the baseline's result, result), with raw data; None if the result does not exist."""
    rows = Result.objects.select_related("kernel", "version")
    row = rows.select_related("measurement__workload", "measurement__run__gpu", "measurement__run__environment")
    profiles, profiling = (
        KernelProfile.objects.filter(result=OuterRef("pk")),
        Run.objects.filter(profile_of=OuterRef("pk")),
    )
    row = row.annotate(was_profiled=Exists(profiles) | Exists(profiling))
    result_row = row.filter(pk=result, measurement__run=run).first()
    if result_row is None:
        return None
    measurement = result_row.measurement
    beside = rows.filter(measurement=measurement, kernel__name=measurement.baseline).exclude(pk=result).defer("log")
    measured = _measured(measurement, [*beside, result_row], raw=True)
    arm = measured.results[-1]
    arm.__dict__["was_profiled"] = result_row.was_profiled
    return measurement.run, measured, arm


def whose(result: int) -> dict[str, Any] | None:
    """What a result is of: {"pk", "run", "label", "named"}."""
    names = {"run": F("measurement__run"), "label": F("measurement__workload__label"), "named": F("kernel__name")}
    found = Result.objects.filter(pk=result).values("pk", **names).first()
    return dict(found) if found else None


def of_results(pks: Iterable[int]) -> dict[int, tuple[StoredMeasured, StoredArm]]:
    """Single results with their measurements, by row id."""
    rows = Result.objects.filter(pk__in=list(pks)).select_related("kernel", "version", "measurement__workload")
    rows = rows.defer(*RAW, "version__source", "measurement__aa_samples_ns")
    results = {}
    for row in rows.annotate(base_status=Subquery(baselines_of().values("status")[:1])):
        measured = _measured(row.measurement, [row], raw=False)
        if row.base_status not in (None, Status.OK):
            measured.__dict__["results"] = [measured.results[0].model_copy(update=NO_SPEEDUP)]
        results[row.pk] = measured, measured.results[0]
    return results


def with_baselines(
    results: Iterable[int], measurements: Iterable[int] | None = None, profiles: bool = False
) -> dict[int, tuple[Run, StoredMeasured, StoredArm]]:
    """Row id -> (run, measurement with the baseline's result, result) of results of many runs, in one query.

    measurements: row ids of the measurements that they are of, if they are known. profiles: also their newest profiles.
    """
    wanted = set(results)
    rows = Result.objects.filter(
        measurement__in=Measurement.objects.filter(results__in=wanted) if measurements is None else list(measurements)
    )
    rows = rows.filter(Q(pk__in=wanted) | Q(kernel__name=F("measurement__baseline")))
    if profiles:
        newest = KernelProfile.objects.filter(result=OuterRef("pk")).order_by("-pk").values("body")[:1]
        rows = rows.annotate(profile=Subquery(newest))
    beside = ("measurement__workload", "measurement__run__gpu", "measurement__run__user")
    together: dict[int, list[Result]] = {}
    for row in rows.select_related("kernel", "version", *beside).defer(*RAW, *LARGE).order_by("pk"):
        together.setdefault(row.measurement_id, []).append(row)
    read = {}
    for arms in together.values():
        measured = _measured(arms[0].measurement, arms, raw=False)
        for arm, row in zip(measured.results, arms, strict=True):
            if body := row.__dict__.get("profile"):
                arm.__dict__["profile"] = Profile(**body)
            if arm.pk in wanted:
                read[arm.pk] = arms[0].measurement.run, measured, arm
    return read


def beside(measured: StoredMeasured, run: Run, arm: StoredArm) -> list[tuple[int, str]]:
    """(row id, kernel) of the other results on the same workload in the same run."""
    rows = Result.objects.filter(measurement__run=run, measurement__workload__key=measured.key)
    return list(rows.exclude(pk=arm.pk).order_by("pk").values_list("pk", "kernel__name"))


def last_unsupported(kernel: Kernel) -> tuple[int, str] | None:
    """(run, reason) of the newest result that says why the kernel is not supported."""
    rows = Result.objects.filter(kernel=kernel, status=Status.UNSUPPORTED).exclude(why="")
    return rows.order_by("-pk").values_list("measurement__run", "why").first()


def with_kernels_of(run: Run, runs: QuerySet[Run]) -> QuerySet[Run]:
    """Those of the runs that have one of this run's kernels beside the baseline; of a submission, any of its name."""
    beside = Result.objects.exclude(kernel__name=F("measurement__baseline"))
    names = beside.filter(measurement__run=run).values_list("kernel__name", flat=True)
    holds = Q(pk__in=[])
    for name in {name.partition(AT)[0] for name in names}:
        holds |= Q(kernel__name=name) | Q(kernel__name__startswith=name + AT)
    return runs.filter(Exists(beside.filter(holds, measurement__run=OuterRef("pk"))))


EFFORT = ("name", "min_rounds", "max_rounds", "budget_s")
"""Fields of a protocol that decide how long it takes."""


def seconds_per_result(gpu: Gpu, keys: list[str], plan: Protocol) -> dict[str, list[float]]:
    """Workload -> seconds of each measurement on this device / its timed results and processes. Only of measurements with the
    same effort, isolated or not; without sustained ones."""
    timed = Count("results", filter=Q(results__status=Status.OK))
    rows = Measurement.objects.filter(run__gpu=gpu, workload__key__in=keys, took_s__gt=0, isolated=plan.isolated)
    rows = rows.exclude(mode="sustained")
    paces: dict[str, list[float]] = {}
    asked = KeyTransform("protocol", "run__config")
    figures = ("workload__key", "took_s", "timed", KeyTransform("processes", "protocol"), asked)
    usual, effort = Protocol().model_dump(include=set(EFFORT)), plan.model_dump(include=set(EFFORT))
    for key, took_s, count, processes, its in rows.annotate(timed=timed).values_list(*figures):
        if took_s and count and effort.items() <= (usual | (its or {})).items():
            paces.setdefault(key, []).append(took_s / count / (processes or 1))
    return paces


def fastest(environments: Iterable[int], dtype: str) -> tuple[int, float | None, str, int, str] | None:
    """(row id, TFLOP/s, kernel, run, workload) of the highest rate of a result that is ok, from an uncontended run."""
    rows = (
        tried(environments=environments)
        .filter(
            status=Status.OK,
            tflops__isnull=False,
            measurement__run__contended=False,
            measurement__margin__lte=WIDEST_MARGIN,
            measurement__workload__dtype=dtype,
        )
        .order_by("-tflops")
    )
    return rows.values_list("pk", "tflops", "kernel__name", "measurement__run", "measurement__workload__label").first()


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
        samples_deleted_at=run.samples_deleted_at,
        timing=run.timing,
        measurements=list(of_run(run, raw=True)),
        profiles=[row.with_table for row in KernelProfile.objects.filter(result__measurement__run=run).defer("trace")],
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
    measured = StoredMeasured.model_construct(
        pk=row.pk,
        label=row.workload.label,
        workload=spec,
        key=row.workload.key,
        mode=row.mode,
        group=row.group,
        isolated=row.isolated,
        isolation=Isolation.model_validate(row.isolation) if row.isolation else None,
        baseline=row.baseline,
        margin=row.margin,
        aa=Ratio(*row.aa) if row.aa else None,
        aa_samples_ns=row.aa_samples_ns if raw else None,
        protocol=ProtocolFacts.model_validate(row.protocol),
        telemetry=TelemetrySummary.model_validate(row.telemetry),
        notes=row.notes,
        took_s=row.took_s,
        timing=row.timing if "timing" in row.__dict__ else {},
        results=[],
    )
    found = without_false_ratios([_arm(arm, raw) for arm in arms], row.baseline)
    for arm in found:
        arm.__dict__["verdict"] = verdict(arm, measured)
    measured.__dict__["results"] = found
    return measured


BLANK = StoredArm.model_construct(kernel="", pk=0, verdict=Verdict.NONE)
"""Copied for each row, which takes a tenth of the time that a model needs to be made."""


def _arm(arm: Result, raw: bool) -> StoredArm:
    columns = arm.__dict__  # what was read: the rest is deferred
    fields = {name: columns[name] for name in COLUMNS if name in columns}
    for name, model in NESTED.items():
        if fields.get(name) is not None:
            fields[name] = model.model_validate(fields[name])
    fields |= {"pk": arm.pk, "status": Status(arm.status), "kernel": arm.kernel.name, "backend": arm.kernel.backend}
    fields["ran"] = [(name, ns) for name, ns in arm.ran]
    fields["is_confirmed"] = arm.confirmed
    if arm.version:
        fields |= {"sha256": arm.version.sha256, "source": arm.version.source if raw else ""}
    return BLANK.model_copy(update=fields)
