"""Several runs side by side: each kernel's speedup over the baseline of its own run. `/compare/?runs=1,2,3`

Between runs of one card and fingerprint a change has a word (kernels/report/comparison.py). Runs on other cards or versions
are measurements of their own: they stand side by side, without a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.http import urlencode

from kernels.analysis.standing import ranking
from kernels.contract.environment import KEYED, WHERE_TOLD
from kernels.report import comparison, tables
from kernels.report.comparison import RunResults
from runs.charts import side_by_side
from runs.charts.side_by_side import Picture
from runs.charts.theme import THEMES
from runs.models import Run
from runs.queries import measurements
from runs.queries.measurements import StoredArm, StoredMeasured
from runs.queries.outcomes import Outcome
from runs.views.compare import OFFERED, results_of
from runs.views.pictures import as_file

MOST_RUNS = 8
VERSIONS = ("torch", "driver")
"""These are always told."""
TOLD = {name: name for name in (*KEYED, *WHERE_TOLD) if name not in ("device", *VERSIONS)} | {"uuid": "card"}
"""Name in an environment -> its name on the page: told where runs differ in it."""
LONGEST = 12
"""Longest value of these, in characters: a card's uuid begins with "GPU-" and 8 digits."""


@dataclass(frozen=True)
class Column:
    """One run."""

    run: Run
    device: str
    versions: str
    differ: list[str]
    """What else is not the same in all runs: "harness 5"."""
    baseline: str
    why: str
    """Why it has no word against the first run; empty if it has."""


@dataclass(frozen=True)
class Cell:
    """One kernel on one workload in one run. change: its row of the comparison with the first run, if there is one."""

    run: Run
    arm: StoredArm
    change: comparison.Row | None

    def record(self, verdict: str) -> dict[str, Any]:
        arm, change = self.arm, self.change
        return {
            "run": self.run.pk, "result": arm.pk, "status": arm.status, "verdict": verdict, "speedup": arm.speedup,
            "speedup_low": arm.speedup_low, "speedup_high": arm.speedup_high, "p50_ms": arm.p50_ms,
            "change": change and change.change, "change_low": change and change.change_low,
            "change_high": change and change.change_high, "change_verdict": change and change.verdict,
        }  # fmt: skip


@dataclass(frozen=True)
class Group:
    """One kernel: a row for each workload, a cell for each run, None where it was not measured."""

    operation: str
    kernel: str
    outcomes: list[Outcome]
    """For each run, how it stands against the baseline of that run."""
    rows: list[tuple[str, str, list[Cell | None]]]
    """Label of the workload, mode, cells."""

    def record(self, verdicts: Mapping[tuple[int, str, str, str, str], str]) -> dict[str, Any]:
        rows = []
        for label, mode, cells in self.rows:
            place = self.operation, label, mode, self.kernel
            results = [cell.record(verdicts[cell.run.pk, *place]) if cell else None for cell in cells]
            rows.append({"workload": label, "mode": mode, "results": results})
        standings = [one.sentence for one in self.outcomes]
        return {"operation": self.operation, "kernel": self.kernel, "standings": standings, "rows": rows}


@dataclass(frozen=True)
class Many:
    """Runs side by side: the first, and what changed from it to each that can be compared with it."""

    runs: list[Run]
    measured: dict[int, list[StoredMeasured]]
    why: dict[int, str]
    """Of each run, why it has no word against the first; empty if it has."""
    changes: dict[int, dict[tuple[str, str, str], comparison.Row]]

    @classmethod
    def of(cls, runs: list[Run]) -> Many:
        measured = measurements.of_runs(runs)
        results = {run.pk: results_of(run, measured[run.pk]) for run in runs}
        first = results[runs[0].pk]
        why = {run.pk: comparison.why_not(first, results[run.pk]) if run != runs[0] else "" for run in runs}
        changes = {run.pk: _changes(first, results[run.pk]) for run in runs[1:] if not why[run.pk]}
        return cls(runs, measured, why, changes)

    @property
    def columns(self) -> list[Column]:
        return _columns(self.runs, self.measured, self.why)

    @property
    def groups(self) -> list[Group]:
        return groups(self.runs, self.measured, self.changes)

    def record(self) -> dict[str, Any]:
        verdicts = {
            (run.pk, row.operation, row.workload, row.mode, row.kernel): str(row.verdict)
            for run in self.runs
            for row in tables.rows(self.measured[run.pk], run.contended)
        }
        columns = [
            {
                "run": one.run.pk, "device": one.device, "versions": one.versions, "differ": one.differ,
                "baseline": one.baseline, "why": one.why,
            }
            for one in self.columns
        ]  # fmt: skip
        return {"runs": columns, "kernels": [group.record(verdicts) for group in self.groups]}


def compare_many(request: HttpRequest) -> HttpResponse:
    """Of two runs that can be compared: their own page."""
    asked = ",".join(filter(None, request.GET.getlist("runs")))
    numbers, runs = _asked(asked)
    context: dict[str, Any] = {"page": "runs", "asked": asked[:200], "problem": _problem(asked, numbers, runs)}
    if len(runs) < 2:
        context |= {"offered": _offered(), "chosen": [run.pk for run in runs]}
    if not runs:
        return render(request, "compare_many.html", context)
    many = Many.of(runs)
    if len(runs) == len(numbers) == 2 and not many.why[runs[1].pk]:
        return redirect("compare", before=runs[0].pk, after=runs[1].pk)
    context |= {
        "columns": many.columns,
        "groups": many.groups,
        "several": len({group.operation for group in many.groups}) > 1,
        "first": runs[0],
        "compared": len(many.changes),
        "pictures": _pictures(runs, many.measured),
        "widths": side_by_side.WIDTHS,
        "chart_query": urlencode({"runs": ",".join(str(run.pk) for run in runs)}),
        "names": [_name(run) for run in runs],
    }
    return render(request, "compare_many.html", context)


def compare_many_json(request: HttpRequest) -> HttpResponse:
    """The same as data: 422 with the sentence of the page, if an address names no runs or others than there are."""
    asked = ",".join(filter(None, request.GET.getlist("runs")))
    numbers, runs = _asked(asked)
    if problem := _problem(asked, numbers, runs) or ("" if runs else "Name runs: ?runs=1,2,3"):
        return JsonResponse({"problem": problem}, status=422)
    return JsonResponse(Many.of(runs).record())


def chart(request: HttpRequest, name: str, kind: str) -> HttpResponse:
    """Speedup, latency or throughput of one operation in these runs, as json, svg or png."""
    palette, operation = request.GET.get("theme", "light"), request.GET.get("operation", "")
    _, runs = _asked(request.GET.get("runs", ""))
    measured = measurements.of_runs(runs)
    wanted = next((one for one in _pictures(runs, measured) if (one.name, one.operation) == (name, operation)), None)
    if wanted is None or palette not in THEMES:
        raise Http404(f"there is no chart '{name}' of these runs")
    drawn = side_by_side.draw(wanted, [_name(run) for run in runs], palette, "narrow" in request.GET)
    return as_file(drawn.to_dict(validate=False), kind, palette, f"{name}-{operation}")


def _name(run: Run) -> str:
    body = run.environment.body if run.environment else {}
    return f"run {run.pk}: {body.get('device') or run.device_name or 'an unknown device'}"


def _asked(text: str) -> tuple[list[int], list[Run]]:
    """(the numbers in an address, the runs that there are of the first MOST_RUNS)."""
    numbers = list(dict.fromkeys(int(number) for number in re.findall(r"\d{1,18}", text)))
    found = Run.objects.select_related("gpu", "environment").in_bulk(numbers[:MOST_RUNS])
    return numbers, [found[number] for number in numbers if number in found]


def _problem(asked: str, numbers: Sequence[int], runs: Sequence[Run]) -> str:
    """What is wrong with the address, as a sentence."""
    if not asked.strip(" ,"):
        return ""
    words = [word for word in re.split(r"[\s,]+", asked) if word and not re.fullmatch(r"\d+", word)]
    if words:
        return f"“{words[0][:40]}” is not the number of a run."
    if len(numbers) > MOST_RUNS:
        return f"At most {MOST_RUNS} runs fit side by side; these are the first {MOST_RUNS}."
    found = {run.pk for run in runs}
    missing = [str(number) for number in numbers if number not in found]
    return f"There is no run {', '.join(missing)}." if missing else ""


def _offered() -> list[Run]:
    """The newest runs that have results."""
    return list(Run.objects.for_list().filter(done__gt=0, tune__isnull=True).order_by("-pk")[:OFFERED])


def _columns(
    runs: Sequence[Run], measured: Mapping[int, Sequence[StoredMeasured]], why: Mapping[int, str]
) -> list[Column]:
    bodies = [run.environment.body if run.environment else {} for run in runs]
    varied = [name for name in TOLD if len({str(body.get(name) or "") for body in bodies}) > 1]
    found = []
    for run, body in zip(runs, bodies, strict=True):
        versions = ", ".join(f"{name} {body[name]}" for name in VERSIONS if body.get(name))
        differ = [f"{TOLD[name]} {str(body.get(name) or 'unknown')[:LONGEST]}" for name in varied]
        baselines = dict.fromkeys(m.baseline for m in measured[run.pk])
        device = body.get("device") or run.device_name
        found.append(Column(run, device, versions, differ, ", ".join(baselines), why[run.pk]))
    return found


def _pictures(runs: Sequence[Run], measured: Mapping[int, Sequence[StoredMeasured]]) -> list[Picture]:
    """Charts with kernels in the order of the table, after the baselines."""
    places = {(one.operation, one.kernel): place for place, one in enumerate(groups(runs, measured, {}))}
    rows = [tables.rows(measured[run.pk]) for run in runs]
    return side_by_side.pictures(
        [sorted(table, key=lambda row: places.get((row.operation, row.kernel), -1)) for table in rows]
    )


def _changes(before: RunResults, after: RunResults) -> dict[tuple[str, str, str], comparison.Row]:
    return {(row.workload_key, row.mode, row.kernel): row for row in comparison.rows(before, after)}


def groups(
    runs: Sequence[Run],
    measured: Mapping[int, Sequence[StoredMeasured]],
    changes: Mapping[int, Mapping[tuple[str, str, str], comparison.Row]],
) -> list[Group]:
    """By kernel; kernels and workloads that most runs share come first, of these kernels the one with the largest speedup.
    Baselines have no speedup and no row."""
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
    outcomes = {run.pk: _outcomes(run, measured[run.pk]) for run in runs}

    def rank(one: tuple[tuple[str, str], dict[tuple[str, str], dict[int, Cell]]]) -> tuple[int, float]:
        return -max(map(len, one[1].values())), -_mean(one[1])

    return [
        Group(
            operation,
            kernel,
            [outcomes[run.pk].get((operation, kernel), Outcome()) for run in runs],
            [
                (labels[key], mode, [mine.get(run.pk) for run in runs])
                for (key, mode), mine in sorted(places.items(), key=lambda place: -len(place[1]))
            ],
        )
        for (operation, kernel), places in sorted(cells.items(), key=rank)
    ]


def _outcomes(run: Run, measured: Sequence[StoredMeasured]) -> dict[tuple[str, str], Outcome]:
    """Operation and kernel -> how it stands against the baseline."""
    found: dict[tuple[str, str], Outcome] = {}
    for operation, part in tables.by_operation(tables.rows(measured)).items():
        for one in ranking(tables.compared(part), run.contended).standings:
            found[operation, one.kernel] = Outcome(one, run.contended, run.state == Run.State.DONE)
    return found


def _mean(places: Mapping[tuple[str, str], Mapping[int, Cell]]) -> float:
    """The geometric mean of the speedups of a kernel that stand; 0 if none does."""
    arms = [cell.arm for mine in places.values() for cell in mine.values()]
    ratios = [arm.speedup for arm in arms if arm.speedup and arm.status == "ok"]
    return geometric_mean(ratios) if ratios else 0.0
