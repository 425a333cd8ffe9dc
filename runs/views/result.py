"""The page of one result: the number, and the evidence for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone

from kernels.analysis.agreement import AGREE_NS, AGREE_NS_PER_KERNEL, AGREE_SHARE
from kernels.analysis.findings_run import CLOCKS_ALIKE, THROTTLING
from kernels.analysis.memory import size
from kernels.analysis.statistics import MARGIN, WIDEST_MARGIN
from kernels.catalog import PROBLEM
from kernels.contract.arm_result import MOST_KERNELS_RAN, ArmResult, CrossCheck
from kernels.contract.events import Measured
from kernels.report.tables import under_load
from runs.charts import distribution
from runs.models import Run
from runs.queries import measurements, point_rows
from runs.queries.measurements import StoredArm, StoredMeasured
from runs.templatetags.figures import grouped, us
from runs.views import correctness
from runs.views.downloads import csv_file
from runs.views.pictures import as_file, palette_of
from runs.views.profiles import panel
from runs.views.result_protocol import isolation_of, needed, parts_of_interval, protocol_of, telemetry_of


@dataclass(frozen=True)
class Subject:
    """A result with its run and measurement."""

    run: Run
    measured: StoredMeasured
    """Includes this result, and the baseline's if it is another."""
    result: StoredArm

    @classmethod
    def of(cls, pk: int, result_pk: int) -> Subject:
        stored = measurements.of_result(pk, result_pk)
        if stored is None:
            raise Http404(f"there is no result {result_pk} in run {pk}")
        return cls(*stored)

    @property
    def baseline(self) -> StoredArm | None:
        """The baseline's result in the same measurement; may be this one."""
        return self.measured.arm(self.measured.baseline)

    @property
    def both(self) -> list[StoredArm]:
        """The baseline, and this result if it is another one."""
        return self.measured.results


def result(request: HttpRequest, pk: int, result_pk: int) -> HttpResponse:
    """One kernel on one workload: verdict, samples, cross-check, source and log."""
    subject = Subject.of(pk, result_pk)
    measured, arm, baseline = subject.measured, subject.result, subject.baseline
    arms = distribution.arms_of(arm, baseline)
    context = {
        "page": "runs",
        "result": arm,
        "measurement": measured,
        "run": subject.run,
        "baseline": baseline,
        "siblings": measurements.beside(measured, subject.run, arm),
        "has_history": point_rows.tells(measured, arm),
        "dense_tflops": arm.tflops * factor if arm.tflops and (factor := measured.workload.dense_factor) else None,
        "memory": memory_of(measured, arm),
        "brought": measured.workload.sizes["problem"] if measured.workload.operation == PROBLEM else "",
        "launch": launch_of(arm),
        "ran_more": len(arm.ran) >= MOST_KERNELS_RAN,
        "doubts": doubts(subject),
        "arms": arms,
        "samples_deleted_at": subject.run.samples_deleted_at if arm.n is not None and not arms else None,
        "said": distribution.captions(arms, is_paired(measured)) if arms else {},
        "cold": [one for one in subject.both if one.cold] if arm.cold else [],
        "clocks": [one for one in subject.both if one.sm_mhz] if arm.sm_mhz else [],
        "crosscheck": crosscheck_of(subject.both) if arm.crosscheck else {},
        "protocol": protocol_of(measured),
        "isolation": isolation_of(measured.isolation, arm.kernel) if measured.isolation else [],
        "interval": parts_of_interval(arm),
        "confirmed": arm.is_confirmed,
        "telemetry": telemetry_of(measured.telemetry),
        "correctness": correctness.facts(arm.correctness),
        "checks": correctness.tables(arm.correctness),
        "why": panel(subject.run, measured, arm),
    }
    return render(request, "result.html", context)


def is_paired(measured: Measured) -> bool:
    return measured.protocol.paired is not False


# --- what speaks against it -------------------------------------------------------------------------------------------


def doubts(subject: Subject) -> list[str]:
    """Caveats: sentences on what may distort the number."""
    measured, result, baseline = subject.measured, subject.result, subject.baseline
    sentences = []
    if subject.run.withdrawn_at:
        sentences.append(f"Its run is withdrawn: {subject.run.withdrawn_why} The figures do not count.")
    if subject.run.contended:
        sentences.append(_contended(measured))
    if baseline and baseline.pk != result.pk:
        sentences += _clocks_differ(result, baseline)
    if result.crosscheck and result.crosscheck.agrees is False:
        sentences.append(_clocks_disagree(result.crosscheck))
    if factor := under_load(measured, result.p50_ms, result.crosscheck):
        sentences.append(
            f"Back to back, a call takes {factor - 1:.0%} longer, probably because the clock falls under continuous load. "
            "Use the mode sustained to compare under load."
        )
    if result.n is not None and measured.aa and MARGIN * 1.01 < measured.margin <= WIDEST_MARGIN:
        sentences.append(f"A/A of {measured.baseline} was noisy here: {needed(measured.margin)}.")
    if result.n is not None and measured.telemetry.throttled:
        named = " and ".join(THROTTLING.get(reason, reason) for reason in measured.telemetry.throttled)
        sentences.append(f"The GPU was throttled during this measurement: {named}.")
    return sentences


def _contended(measured: Measured) -> str:
    """What others did on the device during the run."""
    if not measured.on_cpu:
        return "Another process was on the GPU during this run."
    if measured.is_contended and measured.telemetry.host:
        return (
            f"Other processes used {measured.telemetry.host.foreign:.0%} of this machine's CPU time "
            "during these rounds."
        )
    return "Other processes used this machine during this run."


def _clocks_differ(result: ArmResult, baseline: ArmResult) -> list[str]:
    if not result.sm_mhz or not baseline.sm_mhz:
        return []
    own, its = result.sm_mhz.median, baseline.sm_mhz.median
    apart = max(own, its) / min(own, its) - 1
    if apart <= CLOCKS_ALIKE:
        return []
    clocks = f"The SM clock was {own:,.0f} MHz for {result.kernel} and {its:,.0f} MHz for {baseline.kernel}, {apart:.1%} apart"
    if not result.speedup:
        return [f"{clocks}."]
    explains = (own > its) == (result.speedup > 1)
    what = "it may explain part of the difference" if explains else "at equal clocks the difference might be larger"
    return [f"{clocks}: {what}."]


def _clocks_disagree(check: CrossCheck) -> str:
    if check.event_ns is None or check.span_ns is None:
        return "Cross-check: event time and profiler span differ by more than the limit."
    return (
        f"Cross-check: event time {grouped(check.event_ns / 1e3)} µs and profiler span {grouped(check.span_ns / 1e3)} µs "
        f"differ by more than the limit (the larger of {AGREE_SHARE:.0%} and {AGREE_NS / 1e3:g} µs, plus "
        f"{AGREE_NS_PER_KERNEL / 1e3:g} µs for each further kernel)."
    )


# --- what else was seen -----------------------------------------------------------------------------------------------


def crosscheck_of(results: Sequence[ArmResult]) -> dict[str, Any]:
    """A table with a column per result: {"kernels", "rows": [(heading, cells)]}, without empty rows."""
    seen = [(one.kernel, one.crosscheck) for one in results if one.crosscheck]
    rows = [
        ("event time, µs", [us_of_ns(check.event_ns) for _, check in seen]),
        ("profiler's kernel span, µs", [us_of_ns(check.span_ns) for _, check in seen]),
        ("event and span agree", [yes_no(check.agrees) for _, check in seen]),
        ("back to back, µs", [us_of_ns(check.wall_ns) for _, check in seen]),
        ("calls in its batch", [f"{check.calls:,}" if check.calls else "" for _, check in seen]),
        ("board energy", [energy(check.joules) for _, check in seen]),
    ]
    return {"kernels": [name for name, _ in seen], "rows": [(heading, cells) for heading, cells in rows if any(cells)]}


def us_of_ns(ns: float | None) -> str:
    return "" if ns is None else us(ns / 1e6)


def yes_no(known: bool | None) -> str:
    return "not known" if known is None else "yes" if known else "no"


def energy(joules: float | None) -> str:
    """12.3 J, 12.3 mJ or 12.3 µJ."""
    if joules is None:
        return ""
    for unit, factor in (("J", 1.0), ("mJ", 1e3)):
        if joules * factor >= 1:
            return f"{grouped(joules * factor)} {unit}"
    return f"{grouped(joules * 1e6)} µJ"


def memory_of(measured: Measured, arm: ArmResult) -> str:
    """The memory of a call, and what it counts, in words; empty if unknown."""
    problem, peak = measured.workload.known_problem, arm.peak_memory_bytes
    if problem is None or not problem.work_is_known:
        return "" if peak is None else f"Memory: {size(peak)} during a call, above its inputs."
    read, written = problem.bytes_moved()
    tensors = f"Memory: inputs {size(read)}, output {size(written)}"
    if peak is None:
        return f"{tensors}."
    return (
        f"{tensors}. Peak during a call: {size(peak)} above the inputs (output and workspace), "
        f"{size(read + peak)} in all."
    )


def launch_of(arm: ArmResult) -> str:
    """What a launch of the kernel takes of a multiprocessor, in words; empty if unknown."""
    if arm.registers is None:
        return ""
    said = [f"Registers per thread: {arm.registers}"]
    if arm.local_bytes is not None:
        spilled = f"{arm.local_bytes:,} bytes (spilled registers)" if arm.local_bytes else "none, no spills"
        said.append(f"Local memory per thread: {spilled}")
    if arm.static_shared_bytes is not None and arm.dynamic_shared_bytes is not None:
        shared = f"{arm.static_shared_bytes:,} bytes static, {arm.dynamic_shared_bytes:,} dynamic"
        said.append(f"Shared memory per block: {shared}")
    if arm.block:
        said.append(f"Grid {arm.grid}, block {arm.block}" if arm.grid else f"Block {arm.block}")
    if arm.occupancy is not None:
        said.append(f"Theoretical occupancy: {arm.occupancy:.1%}")
    return ". ".join(said) + "."


# --- the same in other forms ------------------------------------------------------------------------------------------


def deleted(when: datetime) -> str:
    return f"The samples of this run were deleted on {timezone.localdate(when)}, to save space. Its figures were computed before."


def samples_csv(request: HttpRequest, pk: int, result_pk: int) -> HttpResponse:
    """All raw samples. Rounds, and positions in them, count from 1."""
    subject = Subject.of(pk, result_pk)
    if when := subject.run.samples_deleted_at:
        return HttpResponse(f"{deleted(when)}\n", status=410, content_type="text/plain; charset=utf-8")
    samples_ns = subject.result.samples_ns or []
    records = (
        {"round": number, "position": position, "ns": ns}
        for number, round_ns in enumerate(samples_ns, 1)
        for position, ns in enumerate(round_ns, 1)
    )
    return csv_file(records, ("round", "position", "ns"), f"run-{pk}-result-{result_pk}.csv")


def result_json(request: HttpRequest, pk: int, result_pk: int) -> HttpResponse:
    """All data of this result, including raw samples, and of its measurement."""
    subject = Subject.of(pk, result_pk)
    environment = subject.run.environment
    measured = subject.measured.model_dump(mode="json", by_alias=True, exclude={"results", "kind"})
    result = subject.result.model_dump(mode="json", by_alias=True) | {"verdict": subject.result.verdict}
    data = {"run": pk, "fingerprint": environment.fingerprint if environment else ""}
    data |= {"samples_deleted_at": subject.run.samples_deleted_at}
    return JsonResponse(data | {"measurement": measured, "result": result})


def chart(request: HttpRequest, pk: int, result_pk: int, name: str, kind: str) -> HttpResponse:
    theme, narrow = palette_of(request), "narrow" in request.GET
    if name not in distribution.NAMES:
        raise Http404(f"there is no chart '{name}'")
    subject = Subject.of(pk, result_pk)
    arms = distribution.arms_of(subject.result, subject.baseline)
    if not arms:
        raise Http404(deleted(when) if (when := subject.run.samples_deleted_at) else "not timed")
    spec = distribution.spec_of(arms, name, theme, narrow, is_paired(subject.measured))
    return as_file(spec, kind, theme, f"result-{result_pk}-{name}")
