"""Why the kernel of a result is slow: the panel of its page, and its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from kernels.analysis.bottlenecks import findings
from kernels.contract.profile import Profile
from kernels.report import profiles as report
from runs import profiling
from runs.models import KernelProfile, Run
from runs.models.run import ACTIVE
from runs.queries import measurements
from runs.queries.measurements import StoredArm, StoredMeasured
from runs.queries.profiles import last_run_of, newest_of
from runs.views.downloads import download, saved_as


@dataclass(frozen=True)
class Panel:
    """What a result's page says of its profile."""

    row: KernelProfile | None
    last: Run | None
    """The last run that profiles it, or did."""
    why_not: str
    """Why it cannot be profiled from here; empty if it can."""
    no_counters: str
    """Why its device gives no hardware counters; empty if it does."""
    measured_sha256: str

    @property
    def profile(self) -> Profile | None:
        return self.row.profile if self.row else None

    @property
    def headline(self) -> str:
        return report.headline(self.profile) if self.profile else ""

    @property
    def lines(self) -> list[report.Line]:
        return report.lines(self.profile) if self.profile else []

    @property
    def stalls(self) -> list[tuple[str, str]]:
        return report.stalls(self.profile) if self.profile else []

    @property
    def times(self) -> list[tuple[str, str]]:
        return report.times(self.profile) if self.profile else []

    @property
    def missing(self) -> str:
        """Why there are no counters, unless the headline says it."""
        why = self.profile.counters_missing if self.profile else ""
        return "" if why in self.headline else why

    @property
    def active(self) -> Run | None:
        return self.last if self.last and self.last.state in ACTIVE else None

    @property
    def failed(self) -> Run | None:
        """The last run, if it brought nothing."""
        brought = self.row is not None and self.last is not None and self.row.run_id >= self.last.pk
        return self.last if self.last and not self.active and not brought else None

    @property
    def is_of_another_version(self) -> bool:
        sha256 = self.profile.sha256 if self.profile else ""
        return bool(sha256 and self.measured_sha256 and sha256 != self.measured_sha256)


def panel(run: Run, measured: StoredMeasured, result: StoredArm) -> Panel:
    gpu = run.gpu
    return Panel(
        row=newest_of(result.pk) if result.was_profiled else None,
        last=last_run_of(result.pk) if result.was_profiled else None,
        why_not=profiling.why_not(run, measured, result),
        no_counters=(gpu.no_counters or "") if gpu and not run.demo else "",
        measured_sha256=result.sha256,
    )


@require_POST
def profile_result(request: HttpRequest, pk: int, result_pk: int) -> HttpResponse:
    """Queues a run that profiles the result's kernel."""
    if (found := measurements.of_result(pk, result_pk)) is None:
        raise Http404(f"there is no result {result_pk} in run {pk}")
    try:
        run, is_new = profiling.profile(*found, request.user if request.user.is_authenticated else None)
    except profiling.NotProfiled as why:
        messages.error(request, str(why))
        return redirect(reverse("result", args=[pk, result_pk]))
    messages.success(request, f"Queued as run {run.pk}." if is_new else f"Run {run.pk} profiles it already.")
    return redirect(f"{reverse('result', args=[pk, result_pk])}#profile")


def _newest(pk: int, result_pk: int, **more: Any) -> KernelProfile:
    rows = KernelProfile.objects.filter(result=result_pk, result__measurement__run=pk, **more)
    if (row := rows.order_by("-pk").first()) is None:
        raise Http404(f"result {result_pk} has no such profile")
    return row


def profile_json(request: HttpRequest, pk: int, result_pk: int) -> HttpResponse:
    """The figures of the newest profile, and the rules that hold."""
    row = _newest(pk, result_pk)
    said = [{"rule": rule.key, "said": phrase, "reason": rule.reason} for rule, phrase in findings(row.profile)]
    data = {"run": pk, "result": result_pk, "profiled_by_run": row.run_id, "at": row.created_at}
    return JsonResponse(data | {"diagnosis": report.headline(row.profile), "findings": said, "profile": row.body})


def profile_txt(request: HttpRequest, pk: int, result_pk: int) -> HttpResponse:
    """The table of PyTorch's profiler."""
    row = _newest(pk, result_pk)
    if not row.table:
        raise Http404(f"result {result_pk} has no profiler's table")
    return download(row.table, "text/plain; charset=utf-8", f"run-{pk}-result-{result_pk}-profile.txt")


def trace(request: HttpRequest, pk: int, result_pk: int) -> HttpResponse:
    """The Chrome trace, compressed: Perfetto and chrome://tracing open it as it is."""
    row = _newest(pk, result_pk, trace__isnull=False)
    name = f"run-{pk}-result-{result_pk}-trace.json.gz"
    return HttpResponse(bytes(row.trace or b""), content_type="application/gzip", headers=saved_as(name))
