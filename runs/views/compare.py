"""The comparison page of two runs: changes of kernels and of their sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from kernels.contract.events import Measured
from kernels.contract.export import Export
from kernels.report import comparison, comparison_summary, tables
from kernels.report.cells import listed
from kernels.report.comparison import GONE, NEW, RunResults
from runs.charts.forest import Scale
from runs.models import KernelVersion, Run
from runs.models.run import FINAL
from runs.queries import measurements
from runs.queries.ratio import Ratio
from runs.views.downloads import csv_file, download
from runs.views.run import get_run
from runs.views.sources import diff

OFFERED = 25
"""Number of newest runs offered for a comparison."""


def alike(run: Run) -> QuerySet[Run]:
    """Finished runs that share a workload, card and environment with this one, newest first."""
    if run.demo or run.environment is None:
        return Run.objects.none()
    workloads = run.measurements.values("workload")
    runs = Run.objects.filter(gpu=run.gpu_id, demo="", environment__fingerprint=run.environment.fingerprint)
    runs = runs.filter(measurements__workload__in=workloads, state__in=FINAL).exclude(pk=run.pk)
    return runs.distinct().order_by("-pk")


def alike_export(export: Export) -> QuerySet[Run]:
    """The same for a run that is a file."""
    uuid, keys = export.environment.get("uuid"), {m.key for m in export.measurements}
    if not uuid or not export.fingerprint:
        return Run.objects.none()
    runs = Run.objects.filter(gpu__uuid=uuid, demo="", environment__fingerprint=export.fingerprint)
    runs = runs.filter(measurements__workload__key__in=keys, state__in=FINAL)
    return runs.distinct().order_by("-pk")


def compare_with(request: HttpRequest, pk: int) -> HttpResponse:
    """Redirects to the comparison with the asked run; else with the previous one, or the next one, that measured one of its
    kernels; else with any of them. Otherwise says why there is none."""
    run, asked = _run(pk), request.GET.get("before", "")
    if asked.isdecimal():
        return redirect("compare", before=_run(int(asked[:18])).pk, after=pk)
    for runs in (measurements.with_kernels_of(run, alike(run)), alike(run)):
        if before := runs.filter(pk__lt=pk).first():
            return redirect("compare", before=before.pk, after=pk)
        if later := runs.filter(pk__gt=pk).last():
            return redirect("compare", before=pk, after=later.pk)
    return render(request, "compare_none.html", {"page": "runs", "run": run})


@dataclass
class Pair:
    """Two runs with their comparison table, or the reason why there is none."""

    before: Run
    after: Run
    why: str
    table: list[comparison.Row]
    pages: dict[tuple[str, str, str], str]
    """Workload, mode and kernel -> the page of its result in the later run."""

    @classmethod
    def of(cls, before: int, after: int) -> Pair:
        was, now = _run(before), _run(after)
        measured = measurements.of_run(now)
        pages = {
            (m.key, m.mode, arm.kernel): reverse("result", args=[now.pk, arm.pk]) for m in measured for arm in m.results
        }
        runs = results_of(was, measurements.of_run(was)), results_of(now, measured)
        why = "It is the same run." if before == after else comparison.why_not(*runs)
        return cls(was, now, why, [] if why else comparison.rows(*runs), pages)


def by_kernel(table: list[comparison.Row], pages: dict[tuple[str, str, str], str]) -> dict[str, list[dict[str, Any]]]:
    """Rows by kernel: edited ones, and unchanged ones (control).

    pages: workload, mode and kernel -> page of the later result.
    """
    scale = Scale.of(map(_changed, table))
    by_place: dict[tuple[str, str], dict[str, Any]] = {}
    for row in table:
        place = _operation(row), row.kernel
        group = by_place.setdefault(place, {"operation": place[0], "kernel": place[1], "edited": False, "rows": []})
        page = pages.get((row.workload_key, row.mode, row.kernel), "")
        group["rows"].append({"row": row, "page": page, "cell": scale.cell(_changed(row))})
        group["edited"] |= row.same_source is False or row.is_broken
    groups = list(by_place.values())
    for group in groups:
        group["edited"] |= all(one["row"].verdict in (NEW, GONE) for one in group["rows"])
    return {"edited": [g for g in groups if g["edited"]], "control": [g for g in groups if not g["edited"]]}


def _changed(row: comparison.Row) -> Ratio | None:
    if row.change is None or row.change_low is None or row.change_high is None or row.margin is None:
        return None
    return Ratio(row.change, row.change_low, row.change_high, row.margin)


def _run(pk: int) -> Run:
    try:
        return get_run(pk)
    except Http404:
        raise Http404(f"there is no run {pk}") from None


def results_of(run: Run, measured: Sequence[Measured]) -> RunResults:
    environment = dict(run.environment.body) if run.environment else {}
    if environment and run.gpu and not run.demo:
        environment["uuid"] = run.gpu.uuid
    return RunResults(environment, measured, run.contended)


def compare(request: HttpRequest, before: int, after: int) -> HttpResponse:
    pair = Pair.of(before, after)
    commits = [
        (run.environment.body.get("commit") or "")[:10] if run.environment else "" for run in (pair.before, pair.after)
    ]
    offered = list(alike(pair.after).only("title", "created_at")[:OFFERED])
    context = {
        "page": "runs",
        "before": pair.before,
        "after": pair.after,
        "why": pair.why,
        "headline": comparison_summary.summary(pair.table),
        **by_kernel(pair.table, pair.pages),
        "baselines": listed(list(dict.fromkeys(row.baseline for row in pair.table))),
        "diffs": list(_diffs(pair.table)),
        "offered": offered,
        "before_offered": pair.before in offered,
        "environment": pair.after.environment.body if pair.after.environment else {},
        "commits": commits,
    }
    return render(request, "compare.html", context)


def _diffs(table: list[comparison.Row]) -> Iterator[dict[str, Any]]:
    """Source changes per kernel: {"kernel", "lines": [(style, text), ...], "added", "removed"}. Of several operations,
    kernels are named with theirs."""
    several = len({_operation(row) for row in table}) > 1
    changed = [
        (f"{_operation(row)}/{row.kernel}" if several else row.kernel, row.sha256_before or "", row.sha256_after or "")
        for row in table
        if row.same_source is False
    ]
    hashes = {sha for _, *both in changed for sha in both}
    sources = dict(KernelVersion.objects.filter(sha256__in=hashes).values_list("sha256", "source"))
    for kernel, was, now in dict.fromkeys(changed):
        yield {"kernel": kernel} | diff(sources.get(was, ""), sources.get(now, ""))


def _operation(row: comparison.Row) -> str:
    return row.workload.split(" ", 1)[0]


# --- the table in other forms -----------------------------------------------------------------------------------------


def _name(before: int, after: int, kind: str) -> str:
    return f"runs-{before}-to-{after}.{kind}"


def compare_csv(request: HttpRequest, before: int, after: int) -> HttpResponse:
    table = Pair.of(before, after).table
    return csv_file(comparison.as_records(table), comparison.COLUMNS, _name(before, after, "csv"))


def compare_json(request: HttpRequest, before: int, after: int) -> HttpResponse:
    pair = Pair.of(before, after)
    table = comparison.as_records(pair.table)
    return JsonResponse({"before": before, "after": after, "why_not": pair.why, "table": table})


def compare_md(request: HttpRequest, before: int, after: int) -> HttpResponse:
    pair = Pair.of(before, after)
    link = request.build_absolute_uri(reverse("compare", args=[before, after]))
    environment = pair.after.environment.body if pair.after.environment else {}
    heading = tables.heading(f"Run {before} to run {after}", environment, link)
    said = comparison_summary.summary(pair.table)
    sentences = pair.why or str(said)
    text = f"{comparison.as_markdown(pair.table, heading)}\n{sentences}\n"
    return download(text, "text/markdown; charset=utf-8", _name(before, after, "md"))
