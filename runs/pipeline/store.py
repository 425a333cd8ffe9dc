"""Stores Measured events as rows, for recorder and importer. The number of queries does not depend on how many they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from kernels.analysis.processes import with_process
from kernels.contract.events import Measured
from kernels.contract.profile import Profile
from runs.models import Kernel, KernelProfile, KernelVersion, Measurement, Newest, Result, Run, Workload
from runs.models.measurement import COLUMNS
from runs.pipeline.confirmed import settle

SHARED = (
    "baseline", "margin", "aa", "aa_samples_ns", "protocol", "telemetry", "notes", "took_s", "timing", "isolated",
    "isolation",
)  # fmt: skip
"""Fields of a Measured with a column of the same name, beside its key."""


def json_of(value: Any) -> Any:
    """A value of an event for a column: models, without what they leave open, and tuples as JSON."""
    return to_jsonable_python(value, by_alias=True, exclude_none=True)


def store_measured(run: Run, events: Sequence[Measured]) -> list[Measurement]:
    """The new rows with their results, in the order of the events. What the run has already is left out."""
    environment = run.environment.body if run.environment else {}
    workloads = Workload.objects.of_each(event.workload for event in events)
    known = run.measurements.filter(workload__in=workloads.values()).values_list("workload", "mode", "group")
    places = set(known)
    new: list[tuple[Measurement, Measured]] = []
    for event in (with_process(event, environment.get("device", "")) for event in events):
        workload = workloads[event.workload.key]
        if (place := (workload.pk, event.mode, event.group)) not in places:
            places.add(place)
            values = {name: json_of(getattr(event, name)) for name in SHARED}
            new.append((Measurement(run=run, workload=workload, mode=event.mode, group=event.group, **values), event))
    rows = Measurement.objects.bulk_create(row for row, _ in new)
    _store_arms(new, (environment.get("commit") or "")[:50])
    Newest.objects.note(rows)
    settle(rows)
    return rows


def _store_arms(new: list[tuple[Measurement, Measured]], commit: str) -> None:
    arms = [(row, event.workload.operation, arm) for row, event in new for arm in event.results]
    kernels = Kernel.objects.of_each({(operation, arm.kernel): arm.backend for _, operation, arm in arms})
    sources = {(kernels[operation, arm.kernel].pk, arm.sha256): arm.source for _, operation, arm in arms}
    versions = KernelVersion.objects.of_each(
        {key: source for key, source in sources.items() if key[1] and source}, commit
    )
    Result.objects.bulk_create(
        Result(
            measurement=row,
            kernel=(kernel := kernels[operation, arm.kernel]),
            version=versions.get((kernel.pk, arm.sha256)),
            **{name: json_of(getattr(arm, name)) for name in COLUMNS},
        )
        for row, operation, arm in arms
    )


def store_profiles(run: Run, profiles: Sequence[Profile]) -> list[Profile]:
    """Stores profiles at the results that they explain: of this run, or the one that it profiles. Returns those that are of
    no result."""
    strays = []
    for profile in profiles:
        results = Result.objects.filter(measurement__workload__key=profile.key, kernel__name=profile.kernel)
        mine = results.filter(pk=run.profile_of_id) if run.profile_of_id else results.filter(measurement__run=run)
        if (result := mine.order_by("pk").first()) is None:
            strays.append(profile)
        else:
            KernelProfile.objects.store(run, result, profile)
    return strays
