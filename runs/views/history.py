"""The history of a kernel on one workload: did it get slower, when, and why? A line of one card, then all runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.shortcuts import render

from kernels.analysis.changes import RULE
from kernels.contract.environment import KEYED
from runs.charts import history_chart
from runs.charts.forest import Scale
from runs.models import Change, KernelVersion
from runs.queries import history
from runs.queries.beside import Beside, beside
from runs.queries.lines import Line, Mark, lines
from runs.queries.points import Point
from runs.views.downloads import csv_file, csv_stream, json_lines
from runs.views.kernels import Subject
from runs.views.pictures import as_file, palette_of
from runs.views.sources import diff
from runs.views.story import day, story

MOST_ROWS_SHOWN = 100
"""Rows of all runs shown on the page; the files have all."""
MOST_MARKS_SHOWN = 20
CHANGES_SHOWN = 3
"""Newest changes with their differences."""
COLUMNS = (
    "number", "at", "run", "before_run", "facts", "verdict", "ratio", "low", "high", "t", "runs_before", "runs_after",
    "level_before_ms", "level_after_ms", "acknowledged",
)  # fmt: skip


@dataclass
class History:
    """A kernel on one workload, and the chosen one of its lines."""

    subject: Subject
    stored: dict[int, Change]
    """Changes by their run."""
    lines: list[Line]
    line: Line | None

    @classmethod
    def of(cls, request: HttpRequest, operation: str, name: str, key: str) -> History:
        subject = Subject.of(request, operation, name, key, most=history.MOST_RESULTS)
        rows = Change.objects.filter(kernel=subject.kernel.pk, workload__key=key).select_related("acknowledged_by")
        stored = {row.run_id: row for row in rows}
        found = lines(subject.series, [run for run, row in stored.items() if row.acknowledged_at])
        asked = request.GET.get("line", "")
        line = next((one for one in found if one.key == asked), None if asked else next(iter(found), None))
        if asked and line is None:
            raise Http404(f"there is no line {asked[:80]} of {name}")
        return cls(subject, stored, found, line)

    @cached_property
    def beside(self) -> Beside:
        assert self.line is not None
        return beside(self.line, self.subject.kernel.name)

    def mark_rows(self) -> list[dict[str, Any]]:
        """One row per mark, the newest first."""
        line = self.line
        if line is None:
            return []
        rows = [self._mark_row(line, number, mark) for number, mark in enumerate(line.marks, 1)]
        return rows[::-1]

    def _mark_row(self, line: Line, number: int, mark: Mark) -> dict[str, Any]:
        now, was = line.points[mark.index], line.points[mark.index - 1]
        row = {"number": number, "mark": mark, "test": mark.test, "at": line.at(mark.index), "run": now.run}
        return row | {"before": was.run, "change": self.stored.get(now.run)}

    def differences(self) -> list[dict[str, Any]]:
        """What differed at each of the newest changes: environment, and source if it did."""
        line = self.line
        if line is None:
            return []
        marks = [mark for mark in reversed(line.marks) if mark.is_change][:CHANGES_SHOWN]
        pairs = [(mark, line.points[mark.index - 1], line.points[mark.index]) for mark in marks]
        edited = [(was, now) for _, was, now in pairs if was.version != now.version]
        wanted = {point.version for pair in edited for point in pair if point.version is not None}
        sources = dict(KernelVersion.objects.filter(pk__in=wanted).values_list("pk", "source")) if wanted else {}
        return [self._difference(line, mark, was, now, sources) for mark, was, now in pairs]

    def _difference(self, line: Line, mark: Mark, was: Point, now: Point, sources: dict[Any, str]) -> dict[str, Any]:
        edited = was.version in sources and now.version in sources
        return {
            "at": line.at(mark.index),
            "before": was.run,
            "run": now.run,
            "environment": environment_diff(*(line.environments.get(point.environment, {}) for point in (was, now))),
            "source": diff(sources[was.version], sources[now.version]) if edited else None,
            "sha256": now.sha256,
            "change": self.stored.get(now.run),
        }


def environment_diff(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, str]]:
    """[(style, text), ...] of what decides a number; styles as in a diff of sources."""
    drawn = []
    for key in KEYED:
        was, now = (str(body.get(key) or "unknown") for body in (old, new))
        name = f"{history.NAMES.get(key, key):<8}"
        drawn += [("", f"  {name} {now}")] if was == now else [("del", f"- {name} {was}"), ("add", f"+ {name} {now}")]
    return drawn


def workload(request: HttpRequest, operation: str, name: str, key: str) -> HttpResponse:
    told = History.of(request, operation, name, key)
    subject, line = told.subject, told.line
    marks = told.mark_rows()
    shown = {
        "line": line,
        "lines": told.lines,
        "story": story(name, line, told.beside) if line else None,
        "marks": marks[:MOST_MARKS_SHOWN],
        "more_marks": max(0, len(marks) - MOST_MARKS_SHOWN),
        "differences": told.differences(),
        "rule": RULE,
        "label": _label(name, line) if line else "",
    }
    return render(request, "kernel_workload.html", subject.context | _runs(subject) | shown)


def _label(name: str, line: Line) -> str:
    """The chart in words."""
    first, last = day(line.at(0)), day(line.at(len(line.points) - 1))
    return f"p50 of {name} in {len(line.points)} runs from {first} to {last}; the numbers are in the tables below"


def _runs(subject: Subject) -> dict[str, Any]:
    """All runs, series by series: where everything but the kernel stays the same."""
    scale = Scale.of(ratio for one in subject.series for _, ratio in one.drawn)
    left, groups, now = MOST_ROWS_SHOWN, [], subject.series[0].facts
    for one in subject.series:
        facts = [(fact, value, value != now.get(fact)) for fact, value in one.facts.items() if value]
        rows = [
            {"point": point, "cell": scale.cell(point.ratio), "edited": _edited(point, was), "was": was}
            for point, was in zip(one.points[:left], [*one.points[1:], None], strict=False)
        ]
        if rows:
            groups.append({"facts": facts, "rows": rows})
        left -= len(rows)
    total = sum(len(one.points) for one in subject.series)
    newest = subject.series[0]
    shown = {"workload": newest.workload, "groups": groups, "total": total, "shown": min(total, MOST_ROWS_SHOWN)}
    return shown | {
        "series_count": len(subject.series),
        "tiers_mode": newest.terms.mode if newest.newest.base_p50_ms else "",
    }


def _edited(point: Point, was: Point | None) -> bool:
    return was is not None and None not in (point.version, was.version) and point.version != was.version


# --- in other forms ---------------------------------------------------------------------------------------------------


def chart(request: HttpRequest, operation: str, name: str, key: str, kind: str) -> HttpResponse:
    theme, narrow = palette_of(request), "narrow" in request.GET
    told = History.of(request, operation, name, key)
    if told.line is None:
        raise Http404("there is no such chart")
    spec = history_chart.spec_of(name, told.line, told.beside, theme, narrow)
    return as_file(spec, kind, theme, f"{operation}-{name}-{key}")


def _marks(request: HttpRequest, operation: str, name: str, key: str) -> list[dict[str, Any]]:
    rows = History.of(request, operation, name, key).mark_rows()
    return [
        {
            "number": row["number"],
            "at": row["at"].isoformat(),
            "run": row["run"],
            "before_run": row["before"],
            "facts": facts_text(row["mark"].facts),
            **figures(row["test"]),
            "acknowledged": row["change"].note if row["change"] and row["change"].acknowledged_at else "",
        }
        for row in rows
    ]


def figures(test: Any) -> dict[str, Any]:
    """The columns of a test."""
    return {
        "verdict": test.verdict.value,
        "ratio": test.ratio,
        "low": test.low,
        "high": test.high,
        "t": test.t,
        "runs_before": test.before,
        "runs_after": test.after,
        "level_before_ms": test.level_before,
        "level_after_ms": test.level_after,
    }


def facts_text(facts: Sequence[Sequence[str]]) -> str:
    """What changed, for one column: "torch 2.10.0 to 2.11.0; source a12 to b34"."""
    return "; ".join(f"{name} {before or 'unknown'} to {after or 'unknown'}" for name, before, after in facts)


def marks_csv(request: HttpRequest, operation: str, name: str, key: str) -> HttpResponse:
    return csv_file(_marks(request, operation, name, key), COLUMNS, f"{operation}-{name}-changes.csv")


def marks_json(request: HttpRequest, operation: str, name: str, key: str) -> HttpResponse:
    return JsonResponse({"rule": RULE.as_dict(), "marks": _marks(request, operation, name, key)})


def history_csv(request: HttpRequest, operation: str, name: str, key: str = "") -> StreamingHttpResponse:
    subject = Subject.of(request, operation, name, key, most=1)
    return csv_stream(
        history.every(subject.kernel, subject.environments, key), history.FIELDS, f"{operation}-{name}.csv"
    )


def history_json(request: HttpRequest, operation: str, name: str, key: str = "") -> StreamingHttpResponse:
    subject = Subject.of(request, operation, name, key, most=1)
    rows = history.every(subject.kernel, subject.environments, key)
    return StreamingHttpResponse(json_lines(rows, kernel=f"{operation}/{name}"), content_type="application/json")
