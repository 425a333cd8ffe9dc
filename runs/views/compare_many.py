"""Several runs side by side: each kernel's speedup over the baseline of its own run. `/compare/?runs=1,2,3`

Between runs of one card and fingerprint a change has a word (kernels/report/comparison.py). Runs on other cards or versions
are measurements of their own: they stand side by side, without a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from kernels.report import comparison
from kernels.report.comparison import RunResults
from runs.models import Run
from runs.queries import measurements
from runs.queries.measurements import StoredArm, StoredMeasured
from runs.views.compare import results_of

MOST_RUNS = 8


@dataclass(frozen=True)
class Column:
    """One run."""

    run: Run
    device: str
    versions: str
    baseline: str
    why: str
    """Why it has no word against the first run; empty if it has."""


@dataclass(frozen=True)
class Cell:
    """One kernel on one workload in one run. change: its row of the comparison with the first run, if there is one."""

    run: Run
    arm: StoredArm
    change: comparison.Row | None


@dataclass(frozen=True)
class Group:
    """One kernel: a row for each workload, a cell for each run, None where it was not measured."""

    operation: str
    kernel: str
    rows: list[tuple[str, str, list[Cell | None]]]
    """Label of the workload, mode, cells."""


def compare_many(request: HttpRequest) -> HttpResponse:
    """Of two runs that can be compared: their own page."""
    asked = request.GET.get("runs", "")
    numbers = list(dict.fromkeys(int(text) for text in re.findall(r"\d{1,18}", asked)))
    found = Run.objects.select_related("gpu", "environment").in_bulk(numbers[:MOST_RUNS])
    runs = [found[number] for number in numbers if number in found]
    context: dict[str, Any] = {"page": "runs", "asked": asked[:200], "problem": _problem(numbers, found)}
    if not runs:
        return render(request, "compare_many.html", context)
    measured = measurements.of_runs(runs)
    results = {run.pk: results_of(run, measured[run.pk]) for run in runs}
    first = runs[0]
    why = {run.pk: comparison.why_not(results[first.pk], results[run.pk]) if run != first else "" for run in runs}
    if len(runs) == len(numbers) == 2 and not why[runs[1].pk]:
        return redirect("compare", before=runs[0].pk, after=runs[1].pk)
    changes = {run.pk: _changes(results[first.pk], results[run.pk]) for run in runs[1:] if not why[run.pk]}
    context |= {
        "columns": [_column(run, measured[run.pk], why[run.pk]) for run in runs],
        "groups": groups(runs, measured, changes),
        "first": first,
        "compared": len(changes),
    }
    return render(request, "compare_many.html", context)


def _problem(numbers: Sequence[int], found: Mapping[int, Run]) -> str:
    """What is wrong with the address, as a sentence."""
    if not numbers:
        return "Give the numbers of the runs, separated by commas."
    if len(numbers) > MOST_RUNS:
        return f"At most {MOST_RUNS} runs fit side by side; these are the first {MOST_RUNS}."
    missing = [str(number) for number in numbers if number not in found]
    return f"There is no run {', '.join(missing)}." if missing else ""


def _column(run: Run, measured: Sequence[StoredMeasured], why: str) -> Column:
    body = run.environment.body if run.environment else {}
    versions = ", ".join(f"{name} {body[name]}" for name in ("torch", "driver") if body.get(name))
    baselines = dict.fromkeys(m.baseline for m in measured)
    return Column(run, body.get("device") or run.device_name, versions, ", ".join(baselines), why)


def _changes(before: RunResults, after: RunResults) -> dict[tuple[str, str, str], comparison.Row]:
    return {(row.workload_key, row.mode, row.kernel): row for row in comparison.rows(before, after)}


def groups(
    runs: Sequence[Run],
    measured: Mapping[int, Sequence[StoredMeasured]],
    changes: Mapping[int, Mapping[tuple[str, str, str], comparison.Row]],
) -> list[Group]:
    """By kernel, in the order of the first run that has it. Baselines have no speedup and no row."""
    cells: dict[tuple[str, str], dict[tuple[str, str], dict[int, Cell]]] = {}
    labels: dict[str, str] = {}
    for run in runs:
        for m in measured[run.pk]:
            labels.setdefault(m.key, m.label)
            for arm in m.results:
                if arm.kernel != m.baseline:
                    change = changes.get(run.pk, {}).get((m.key, m.mode, arm.kernel))
                    places = cells.setdefault((m.workload.operation, arm.kernel), {})
                    places.setdefault((m.key, m.mode), {})[run.pk] = Cell(run, arm, change)
    return [
        Group(
            operation,
            kernel,
            [(labels[key], mode, [mine.get(run.pk) for run in runs]) for (key, mode), mine in places.items()],
        )
        for (operation, kernel), places in cells.items()
    ]
