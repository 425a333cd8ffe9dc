"""Searches for the best settings of a kernel: the form, and what the page of such a run shows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from kernels.contract.search import Search, Table
from kernels.report import searches
from kernels.settings import size_of as space_size
from kernels.settings import spelled, table_path
from runs.access import person
from runs.charts import search_charts
from runs.charts.run_charts import Size
from runs.models import Run
from runs.queries.live import live_progress
from runs.queries.queue import forecast
from runs.queries.searches import search_of
from runs.tune_form import TuneForm
from runs.views import number
from runs.views.downloads import csv_file, download

COLUMNS = (
    "trial", "settings", "origin", "workload", "status", "why", "speedup", "speedup_low", "speedup_high", "p50_ms",
    "p90_ms", "own_p50_ms", "own_p90_ms", "fails", "confirmed", "confirmed_low", "confirmed_high", "confirmed_fails",
)  # fmt: skip


def tune(request: HttpRequest) -> HttpResponse:
    """The form; ?again= a run, ?kernel= operation/name."""
    if request.method != "POST":
        return render(request, "tune.html", {"page": "runs", "form": TuneForm(initial=_initial(request))})
    form = TuneForm(request.POST)
    if form.is_valid():
        run = Run.objects.submit(form.spec, gpu=form.gpu, user=person(request), tune=form.plan)
        return redirect(run)
    return render(request, "tune.html", {"page": "runs", "form": form}, status=422)


def _initial(request: HttpRequest) -> dict[str, Any]:
    asked = number(request.GET.get("again"))
    again = Run.objects.filter(pk=asked).exclude(tune=None).first() if asked is not None else None
    if again is None or again.tune is None:
        return {"kernel": request.GET.get("kernel", "")}
    config = again.config
    named = {
        "device": str(again.gpu_id),
        "kernel": f"{config['operation']}/{config['baseline']}",
        "config": config["name"],
    }
    return named | {name: again.tune[name] for name in ("sampler", "trials", "finalists", "processes", "seed")}


def context_of(request: HttpRequest, run: Run) -> dict[str, Any]:
    """What the page of a search shows, beside what the page of every run has."""
    search = search_of(run)
    pairs = search_charts.draw_sizes(search)
    return {
        "page": "runs",
        "run": run,
        "search": search,
        "answer": searches.answer(search),
        "curse": searches.curse(search),
        "curse_rule": searches.CURSE,
        "rows": _finalists(search),
        "pruned": Counter(trial.pruned for trial in search.pruned).most_common(),
        "trials": [(trial, spelled(trial.settings)) for trial in reversed(search.trials)],
        "best": spelled(search.best) if search.best else "",
        "file": table_path(Path("kernel.py"), search.kernel).name,
        "charts": {name: (Size(*wide), Size(*small)) for name, (wide, small) in pairs.items()},
        "settings": space_size(search.space),
        "sections": [],
        "verdict": None,
        "poll": "",
        "ahead": None,
        "forecast": forecast(run),
        "environment": search.environment,
        "seen": f"{run.state}-{run.done}-{len(search.finalists)}",
        "live": live_progress(run),
    }


def _finalists(search: Search) -> list[dict[str, Any]]:
    promised = {(trial.number, one.key): one.ratio for trial in search.trials for one in trial.results}
    return [
        {
            "number": finalist.number if place == 0 else None,
            "of": len(finalist.results),
            "settings": spelled(finalist.settings),
            "workload": search.label[one.key].split(" ", 1)[-1],
            "promised": promised.get((finalist.number, one.key)),
            "confirmed": one.ratio,
            "why": one.why or str(one.status),
            "processes": one.processes,
            "fails": finalist.fails,
        }
        for finalist in search.finalists
        for place, one in enumerate(finalist.results)
    ]


# --- files ------------------------------------------------------------------------------------------------------------


def as_table(run: Run) -> HttpResponse:
    """The file that the kernel reads, and `python -m kernels tune --resume` continues."""
    search = search_of(run)
    table = Table(operation=search.operation, kernel=search.kernel, searches=[search])
    return HttpResponse(table.as_json(), content_type="application/json")


def as_csv(run: Run) -> HttpResponse:
    return csv_file(_records(search_of(run)), COLUMNS, f"run-{run.pk}.csv")


def as_jsonl(run: Run) -> HttpResponse:
    lines = "".join(json.dumps(record) + "\n" for record in _records(search_of(run)))
    return download(lines, "application/jsonl", f"run-{run.pk}.jsonl")


def as_md(run: Run) -> HttpResponse:
    text = f"```\n{searches.as_text(search_of(run))}\n```\n"
    return download(text, "text/markdown; charset=utf-8", f"run-{run.pk}.md")


def _records(search: Search) -> list[dict[str, Any]]:
    """One row for each trial and workload."""
    again = {(one.number, result.key): (one, result) for one in search.finalists for result in one.results}
    records = []
    for trial in search.trials:
        for one in trial.results:
            finalist, result = again.get((trial.number, one.key), (None, None))
            ratio, confirmed = one.ratio, result.ratio if result else None
            records.append(
                dict.fromkeys(COLUMNS, None)
                | {
                    "trial": trial.number,
                    "settings": spelled(trial.settings),
                    "origin": trial.origin,
                    "workload": search.label[one.key],
                    "status": str(one.status),
                    "why": one.why,
                    "fails": trial.fails,
                    "confirmed_fails": finalist.fails if finalist else None,
                }
                | {name: getattr(one, name) for name in ("p50_ms", "p90_ms", "own_p50_ms", "own_p90_ms")}
                | _ends("speedup", ratio)
                | _ends("confirmed", confirmed)
            )
    return records


def _ends(name: str, ratio: Any) -> dict[str, Any]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), ratio, strict=True)) if ratio else {}
