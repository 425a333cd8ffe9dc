"""The page of one run: live progress, verdict, tables and charts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlencode

import yaml
from django.contrib import messages
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    JsonResponse,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from kernels.config_files import ConfigError, load_config
from kernels.contract.events import Measured
from kernels.report import formats, measures, tables, timing
from kernels.report.summary import as_text
from kernels.submission import is_submitted
from runs.access import own_only, person
from runs.charts.live_lines import live_lines
from runs.charts.run_charts import BOTTOM, MOST_ROWS, ROW, TOP
from runs.charts.run_stored import chart_of, names_of
from runs.models import Run, Share
from runs.profiling import PYTHON
from runs.queries import measurements
from runs.queries.live import live_progress
from runs.queries.queue import forecast
from runs.views import tune
from runs.views.columns import Columns, refused
from runs.views.downloads import csv_file, download, saved_as
from runs.views.pictures import as_file, palette_of
from runs.views.run_matrix import Asked
from runs.views.run_sections import Section, sections

MOST_ROWS_UNASKED = 160
"""If there are more results, the table of all figures is another address: the page stays light."""
LEAST_NOW = 150
"""Least height of a chart in pixels: site.css reserves it, too."""


def get_run(pk: int) -> Run:
    """With `live_token`, that of its link."""
    runs = Run.objects.select_related("gpu", "user", "environment", "session", "withdrawn_by")
    return get_object_or_404(runs.annotate(live_token=Share.objects.all().token_of("run")), pk=pk)


def context_of(request: HttpRequest, run: Run) -> dict[str, Any]:
    if run.tune:
        return tune.context_of(request, run) | {"ahead": running_before(run)}
    measured = measurements.of_run(run)
    table = tables.rows(measured)
    columns = Columns.of(request)
    live, asked = live_progress(run), Asked.of(request)
    parts = sections(run, measured, table, columns, asked, live)
    return {
        "page": "runs",
        "run": run,
        "measurements": measured,
        "columns": columns,
        "sections": parts,
        "figures": len(table) <= MOST_ROWS_UNASKED or columns.named or "figures" in request.GET,
        "verdict": parts[0].headline
        if len(parts) == 1 and run.state == Run.State.DONE and parts[0].headline.strong
        else None,
        "poll": columns.poll + "".join(f"&{urlencode({name: value})}" for name, value in asked.pairs().items()),
        "checked": any(arm.correctness for m in measured for arm in m.results),
        "plan": [] if measured else run.spec.workloads,
        "ahead": running_before(run),
        "forecast": forecast(run),
        "command": reproduce(run),
        "environment": run.environment.body if run.environment else {},
        "seen": f"{run.state}-{run.done}",
        "live": live,
        **now_of(parts, live),
        "timing": timing.spent(measured, run.timing),
        "profiled": measurements.whose(run.profile_of_id) if run.profile_of_id else None,
    }


def now_of(parts: list[Section], live: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of the workload that is being measured, where its charts will stand, and as high."""
    mine = [part for part in parts if any(line.live for line in part.matrix.lines)] or parts[:1]
    if not mine:
        return {}
    workloads = len(mine[0].matrix.lines)
    rows = workloads if workloads <= MOST_ROWS else len(mine[0].matrix.standings)
    return {
        "now": live_lines(live.get("so_far") or {}, live.get("rounds") or 0),
        "now_operation": mine[0].operation,
        "now_height": max(LEAST_NOW, TOP + ROW * rows + BOTTOM),
        "baseline": mine[0].matrix.baseline,
        "live_matrix": mine[0].matrix,
        "live_line": next((line for line in mine[0].matrix.lines if line.live), None),
    }


def running_before(run: Run) -> Run | None:
    """The run that keeps its device busy while it waits."""
    if run.state != Run.State.QUEUED or run.sent_at or run.gpu is None:
        return None
    return Run.objects.sent().filter(gpu=run.gpu).exclude(pk=run.pk).first()


def reproduce(run: Run) -> str:
    """The command line that repeats the measurement without the site."""
    spec = run.spec
    device = "cpu" if run.gpu and run.gpu.kind == "cpu" else f"cuda:{run.gpu.index if run.gpu else 0}"
    if any(is_submitted(name) for name in spec.kernels):
        return "# Press Run again: the agent gets the kernel's files."
    lines = []
    commit = (run.environment.body.get("commit") or "") if run.environment else ""
    if commit and not run.demo:  # a demo run's commit may exist only in its author's repository
        lines.append(
            f"git checkout {commit.rstrip('+')[:12]}{'   # there were local changes' if commit.endswith('+') else ''}"
        )
    folder = _folders(run)
    if run.profile_of_id:
        lines.append(
            f"{folder}{PYTHON} -m kernels profile {spec.kernels[-1]} --config run-{run.pk}.yaml --device {device}"
        )
        return "\n".join(lines)
    try:
        same = load_config(spec.name)
    except ConfigError:
        same = None
    if same and same.workloads == spec.workloads and same.protocol == spec.protocol:
        chosen = "" if same.kernels == spec.kernels else f" --kernels {','.join(spec.kernels)}"
        lines.append(f"{folder}{PYTHON} -m kernels run {spec.name}{chosen} --device {device}")
    else:
        lines.append(f"{folder}{PYTHON} -m kernels run run-{run.pk}.yaml --device {device}")
    return "\n".join(lines)


def _folders(run: Run) -> str:
    """The KERNEL_PATH assignment, if a kernel comes from another folder of its device."""
    folders: dict[str, None] = {}
    for operation in run.spec.operations:
        known = run.gpu.kernels(operation) if run.gpu else []
        mine = run.spec.kernels_of(operation)
        folders |= {k["folder"]: None for k in known if k.get("folder") and k["name"] in mine}
    return f"KERNEL_PATH={shlex.quote(':'.join(folders))} " if folders else ""


def run(request: HttpRequest, pk: int) -> HttpResponse:
    shown = get_run(pk)
    link = link_of(request, shown.get_absolute_url(), getattr(shown, "live_token", None))
    more = {"link": link, "tags": None if request.user.is_anonymous else list(shown.tags.all())}
    context = context_of(request, shown) | more
    ended_early = not shown.is_active and shown.state != Run.State.DONE
    context["below"] = ended_early and bool(context.get("measurements"))  # first what was measured, then how it ended
    return render(request, "run.html", context)


def link_of(request: HttpRequest, address: str, token: str | None) -> str:
    """The full address of a live link, for users to share; empty if there is none."""
    return request.build_absolute_uri(f"{address}?share={token}") if token and request.user.is_authenticated else ""


def live(request: HttpRequest, pk: int) -> HttpResponse:
    """The polled part: progress always; results if the page does not have them yet."""
    context = context_of(request, get_run(pk))
    context["polled"] = True
    context["changed"] = request.GET.get("seen") != context["seen"]
    return render(request, "_live.html", context)


@require_POST
def cancel(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_run(pk)
    own_only(request, run, "cancel it")
    messages.info(request, run.cancel(person(request)))
    return redirect(run)


# --- the table in other forms -----------------------------------------------------------------------------------------


def table_csv(request: HttpRequest, pk: int) -> HttpResponse:
    """The table; with `?columns=` these, each with its interval."""
    run = get_run(pk)
    if run.tune:
        return tune.as_csv(run)
    columns = Columns.of(request)
    if columns.problem:
        return refused(columns)
    return csv_file(_records(run, columns), [*measures.fields(columns.asked), "gpu"], f"run-{pk}.csv")


def _rows(run: Run, measured: Measured, columns: Columns) -> list[tables.Row]:
    """Rows of one workload, in the order that was asked for."""
    table = tables.rows([measured], run.contended)
    return [row for _, row in columns.ordered(list(zip(measured.results, table, strict=True)))]


def _records(run: Run, columns: Columns) -> Iterator[dict[str, Any]]:
    """The last column names the GPU: files of several runs are put together."""
    gpu = {"gpu": run.gpu.name if run.gpu else run.device_name}
    for measured in measurements.of_run(run):
        yield from (one | gpu for one in measures.as_records(_rows(run, measured, columns), columns.asked))


def table_jsonl(request: HttpRequest, pk: int) -> HttpResponseBase:
    """One result a line, sent as it is made; `?columns=` as for .csv, `?format=` as for .json."""
    run = get_run(pk)
    if run.tune:
        return tune.as_jsonl(run)
    columns = Columns.of(request)
    if columns.problem:
        return refused(columns)
    records: Iterable[dict[str, Any]] = _records(run, columns)
    if name := request.GET.get("format"):
        if name not in formats.FORMATS:
            return _no_format(name)
        records = formats.records(name, measurements.of_run(run), environment_of(run))
    lines = (json.dumps(record) + "\n" for record in records)
    return StreamingHttpResponse(lines, content_type="application/jsonl", headers=saved_as(f"run-{pk}.jsonl"))


def _no_format(name: str) -> HttpResponseBadRequest:
    said = f"There is no format {name[:40]!r}. There are: {', '.join(formats.FORMATS)}."
    return HttpResponseBadRequest(said, content_type="text/plain; charset=utf-8")


def environment_of(run: Run) -> dict[str, Any]:
    return run.environment.body if run.environment else {}


def table_md(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_run(pk)
    if run.tune:
        return tune.as_md(run)
    columns = Columns.of(request)
    if columns.problem:
        return refused(columns)
    table = [row for measured in measurements.of_run(run) for row in _rows(run, measured, columns)]
    link = request.build_absolute_uri(run.get_absolute_url())
    title = ", ".join(filter(None, [run.title or f"Run {pk}", partial_of(run)]))
    said = as_text(table, run.contended)
    heading = tables.heading(title, environment_of(run), link)
    lines = partial(measures.lines, asked=columns.asked)
    return download(
        tables.as_markdown(table, heading, lines) + (f"\n{said}\n" if table else ""),
        "text/markdown; charset=utf-8",
        f"run-{pk}.md",
    )


def partial_of(run: Run) -> str:
    """ "3 of 8 measured" of a run that has not measured everything; else empty."""
    return f"{run.done} of {run.total} measured" if run.done < run.total else ""


def table_json(request: HttpRequest, pk: int) -> HttpResponse:
    """All data of the run, including raw samples: another site can load it. `?columns=`: its table has only these.
    `?format=`: only rows, as others write them (kernels/report/formats.py). Of a search, the table that its kernel reads."""
    run = get_run(pk)
    if run.tune:
        return tune.as_table(run)
    columns = Columns.of(request)
    if columns.problem:
        return refused(columns)
    if name := request.GET.get("format"):
        if name not in formats.FORMATS:
            return _no_format(name)
        return JsonResponse(list(formats.records(name, measurements.of_run(run), environment_of(run))), safe=False)
    export = measurements.export_of(run)
    table = [row for measured in export.measurements for row in _rows(run, measured, columns)]
    return HttpResponse(export.as_json(measures.as_records(table, columns.asked)), content_type="application/json")


def config_yaml(request: HttpRequest, pk: int) -> HttpResponse:
    """The config as a file for `python -m kernels run`."""
    run = get_run(pk)
    body = json.loads(json.dumps(run.config)) | {"title": run.title}
    return download(yaml.safe_dump(body, sort_keys=False), "application/yaml", f"run-{pk}.yaml")


# --- charts -----------------------------------------------------------------------------------------------------------


def chart(request: HttpRequest, pk: int, name: str, kind: str) -> HttpResponse:
    theme, run = palette_of(request), get_run(pk)
    if name not in names_of(run):
        raise Http404(f"there is no chart '{name}'")
    drawn = chart_of(run, name, theme)
    if drawn is None:
        raise Http404("no data yet")
    if kind == "svg":  # it is kept
        return HttpResponse(drawn.svg, content_type="image/svg+xml")
    return as_file(drawn.spec, kind, theme, f"run-{pk}-{name}")
