"""Changes: what got slower or faster, and when; and whether a kernel got slower in a period."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from kernels.analysis.changes import RULE
from kernels.analysis.changes import Change as Verdict
from runs.models import Change, Gpu, Kernel
from runs.queries.changed import Answer, answer, listed, with_places
from runs.queries.line_rows import sources
from runs.views import number
from runs.views.downloads import csv_file
from runs.views.history import environment_diff, facts_text
from runs.views.sources import diff

PER_PAGE = 30
PERIODS = {
    "7": "the last 7 days",
    "30": "the last 30 days",
    "90": "the last 90 days",
    "365": "the last year",
    "all": "all time",
}
USUAL = "30"
COLUMNS = (
    "at", "verdict", "operation", "kernel", "workload", "mode", "card", "device", "ratio", "low", "high", "t", "level_before_ms",
    "level_after_ms", "runs_before", "runs_after", "run", "before_run", "facts", "acknowledged_at", "acknowledged_by", "note",
)  # fmt: skip


class Asked:
    """The choices of an address. What it does not know, it does not filter by, and says so."""

    def __init__(self, request: HttpRequest) -> None:
        self.unknown: list[str] = []
        self.kernels = list(Kernel.objects.order_by("operation", "name"))
        self.kernel = self._known(request, "kernel", {kernel.name for kernel in self.kernels})
        self.operation = self._known(request, "operation", {kernel.operation for kernel in self.kernels})
        self.devices = list(Gpu.objects.order_by("name").values_list("name", flat=True).distinct())
        self.device = self._known(request, "device", set(self.devices))
        self.period = self._known(request, "period", set(PERIODS)) or USUAL

    def _known(self, request: HttpRequest, name: str, known: set[str]) -> str:
        value = request.GET.get(name, "")
        if value and value not in known:
            self.unknown.append(f"There is no {name} “{value[:80]}”.")
        return value if value in known else ""

    @property
    def since(self) -> datetime | None:
        return None if self.period == "all" else timezone.now() - timedelta(days=int(self.period))

    @property
    def chosen(self) -> list[Kernel]:
        return [k for k in self.kernels if k.name == self.kernel and self.operation in ("", k.operation)]

    def rows(self) -> Any:
        return listed(self.kernel, self.operation, self.device, self.since)

    @property
    def query(self) -> dict[str, str]:
        given = {"kernel": self.kernel, "operation": self.operation, "device": self.device, "period": self.period}
        return {name: value for name, value in given.items() if value}


def changes(request: HttpRequest) -> HttpResponse:
    asked = Asked(request)
    page = max(1, number(request.GET.get("page")) or 1)
    first = (min(page, 1000) - 1) * PER_PAGE
    rows = list(with_places(asked.rows())[first : first + PER_PAGE + 1])
    more, rows = len(rows) > PER_PAGE, rows[:PER_PAGE]
    told = answer(asked.chosen, asked.since, asked.device) if asked.chosen else None
    context = {
        "page": "changes",
        "asked": asked,
        "periods": PERIODS,
        "operations": sorted({kernel.operation for kernel in asked.kernels}),
        "names": sorted({kernel.name for kernel in asked.kernels}),
        "sentence": sentence(asked, told, rows, more or first > 0),
        "rows": _with_differences(rows),
        "older": page + 1 if more else None,
        "newer": page - 1 if page > 1 else None,
        "rule": RULE,
    }
    return render(request, "changes.html", context)


def _with_differences(rows: list[Change]) -> list[dict[str, Any]]:
    texts, shown = sources(rows) if rows else {}, []
    for row in rows:
        was, now = (texts.get((run, row.kernel_id, row.workload_id)) for run in (row.before_id, row.run_id))
        bodies = [run.environment.body if run.environment else {} for run in (row.before, row.run)]
        one = {
            "change": row,
            "environment": environment_diff(*bodies),
            "source": diff(was[1], now[1]) if was and now and was[0] != now[0] else None,
            "sha256": now[0] if now else "",
            "test": row,
        }
        shown.append(one)
    return shown


def sentence(asked: Asked, told: Answer | None, rows: list[Change], more: bool) -> tuple[str, str]:
    """(tone, sentence without its full stop) about the chosen kernel and period. "Did not" only where that is certain."""
    period = PERIODS[asked.period]
    where = f" on {asked.device}" if asked.device else ""
    when = f" in {period}" if asked.period != "all" else ""
    if told is None:
        return _of_all(rows, more, f"{where}{when}")
    name, on = asked.kernel, _counted(told.workloads, "workload")
    if not told.lines:
        return "same", f"{name} has no result{where}{when} that can be compared"
    if told.slower:
        return "slower", f"{name} got slower{where}{when} on {told.slower_workloads} of {on}"
    if not told.unknown:
        return "same", f"{name} did not get slower{where}{when}: {on}, 0 regressions"
    if not told.steady:
        return "same", f"It is unknown whether {name} got slower{where}{when}: {on} with too few or too noisy runs"
    known = f"{told.steady} of {_counted(told.lines, 'line')}"
    return "same", f"No regression of {name} was found{where}{when}, but there are enough runs to tell on only {known}"


def _of_all(rows: list[Change], more: bool, where: str) -> tuple[str, str]:
    if not rows:
        return "same", f"No change was found{where}"
    slower = sum(row.verdict == Verdict.REGRESSION for row in rows)
    least = "At least " if more else ""
    said = f"{least}{_counted(slower, 'regression')} and {_counted(len(rows) - slower, 'improvement')}{where}"
    return ("slower" if slower else "same"), said


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


@require_POST
def acknowledge(request: HttpRequest, pk: int) -> HttpResponse:
    change = get_object_or_404(Change.objects.select_related("kernel", "workload"), pk=pk)
    note = request.POST.get("note", "").strip()[:2000]
    back = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}):
        back = reverse("kernel_workload", args=[change.kernel.operation, change.kernel.name, change.workload.key])
    if not note:
        messages.error(request, "Explain the change in a note. The note begins the new level.")
    elif change.acknowledged_at:
        messages.error(request, "It was acknowledged already.")
    else:
        change.acknowledge(request.user, note)
        messages.success(request, "Acknowledged. Later runs are compared with those from this change on.")
    return redirect(back)


# --- in other forms ---------------------------------------------------------------------------------------------------


def _table(request: HttpRequest) -> list[dict[str, Any]]:
    return [_row(row) for row in with_places(Asked(request).rows())]


def _row(row: Change) -> dict[str, Any]:
    by = row.acknowledged_by
    figures = ("verdict", "ratio", "low", "high", "t", "level_before_ms", "level_after_ms", "runs_before", "runs_after")
    return {name: getattr(row, name) for name in figures} | {
        "at": row.at.isoformat(),
        "operation": row.kernel.operation,
        "kernel": row.kernel.name,
        "workload": row.workload.label,
        "mode": row.mode,
        "card": row.gpu.uuid,
        "device": row.gpu.name,
        "run": row.run_id,
        "before_run": row.before_id,
        "facts": facts_text(row.facts),
        "acknowledged_at": row.acknowledged_at.isoformat() if row.acknowledged_at else "",
        "acknowledged_by": by.get_username() if by else "",
        "note": row.note,
    }


def changes_csv(request: HttpRequest) -> HttpResponse:
    return csv_file(_table(request), COLUMNS, "changes.csv")


def changes_json(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"changes": _table(request)})
