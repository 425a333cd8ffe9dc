"""The page of one run: while it is measured, its verdict, its table in every form, its charts."""

from __future__ import annotations

import json
import shlex
from typing import Any

import yaml
from django.conf import settings
from django.contrib import messages
from django.db.models import Prefetch
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST
from redis.exceptions import RedisError

from kernels.catalog import operations
from kernels.report import tables
from kernels.report.summary import answer
from kernels.workload import ConfigError, load_config
from runs.broker import BrokerKeys
from runs.charts.run_charts import LEAST_SHOWN, NAMES, THEMES, chart_of, drawn, has_limits, left_out
from runs.models import Measurement, Result, Run, Share
from runs.queries.estimates import estimate

PYTHON = ".venv/bin/python"
"""As `make install` makes it, in the checkout."""


def get_run(pk: int) -> Run:
    return get_object_or_404(Run.objects.select_related("gpu", "user", "environment", "share", "session"), pk=pk)


def measurements(run: Run, raw: bool = False) -> list[Measurement]:
    """What a run has measured, in the order of its config, without the raw samples unless asked for."""
    results = Result.objects.select_related("kernel", "version")
    if not raw:
        results = results.defer("ticks_ns", "log", "version__source")
    kept = run.measurements.select_related("workload").prefetch_related(Prefetch("results", results))
    found = list(kept if raw else kept.defer("aa_ticks_ns"))
    order = {w.key: number for number, w in enumerate(run.spec.workloads)}
    return sorted(found, key=lambda m: (order.get(m.workload.key, len(order)), m.pk))


def context_of(run: Run) -> dict[str, Any]:
    found = measurements(run)
    table = tables.rows([m.as_event() for m in found])
    return {
        "page": "runs",
        "run": run,
        "measurements": found,
        "answer": answer(table, run.spec.operation),
        "checked": any(r.correctness for m in found for r in m.results.all()),
        "has_times": any(row["p50_ms"] is not None for row in drawn(table)),
        "has_speedups": any(row["speedup"] is not None for row in drawn(table)),
        "has_limits": has_limits(table),
        "plan": [] if found else run.spec.workloads,
        "ahead": running_before(run),
        "command": reproduce(run),
        "unit": unit_of(run),
        "environment": run.environment.body if run.environment else {},
        "seen": f"{run.state}-{run.done}",
        "left_out": left_out(table),
        "least_shown": LEAST_SHOWN,
        "live": shown(run),
    }


def running_before(run: Run) -> Run | None:
    """What its device is busy with while it waits."""
    if run.state != Run.State.QUEUED or run.sent_at or run.gpu is None:
        return None
    return Run.objects.sent().filter(gpu=run.gpu).exclude(pk=run.pk).first()


def unit_of(run: Run) -> str:
    """The headline unit of a run's operation; an operation that is no longer there counts in TFLOP/s."""
    known = operations().get(run.config.get("operation", ""))
    return known.unit if known else "TFLOP/s"


def shown(run: Run) -> dict[str, Any]:
    """Progress as the agent shows it; empty if the broker has none."""
    if not run.is_active:
        return {}
    try:
        state = BrokerKeys(settings.REDIS_URL).shown(run.pk)
    except (RedisError, ValueError):
        return {}
    if state:
        state["number"] = min(state["position"] + 1, state["total"])
        state["remaining_s"] = remaining(run)
    return state


def remaining(run: Run) -> float | None:
    """Seconds left, by what the workloads measured so far took; before the first is measured, by what such runs took. None where
    that is over."""
    if run.elapsed_s is None or run.started_at is None:
        return None
    if last := run.measurements.order_by("created_at").last():
        whole = (last.created_at - run.started_at).total_seconds() / max(1, run.done) * run.total
    else:
        whole = estimate(run.spec, run.gpu).seconds
    left = whole - run.elapsed_s
    return left if left > 0 else None


def reproduce(run: Run) -> str:
    """The command line that measures the same again, without the site."""
    spec = run.spec
    device = "cpu" if run.gpu and run.gpu.kind == "cpu" else f"cuda:{run.gpu.index if run.gpu else 0}"
    lines = []
    commit = (run.environment.body.get("commit") or "") if run.environment else ""
    if commit and not run.sample:  # a sample's may be in no repository but that of who measured it
        lines.append(
            f"git checkout {commit.rstrip('+')[:12]}{'   # there were local changes' if commit.endswith('+') else ''}"
        )
    folder = _folders(run)
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
    """What sets KERNEL_PATH, if a kernel is from another folder, as its device says now."""
    known = run.gpu.kernels(run.spec.operation) if run.gpu else []
    folders = {k["folder"]: None for k in known if k.get("folder") and k["name"] in run.spec.kernels}
    return f"KERNEL_PATH={shlex.quote(':'.join(folders))} " if folders else ""


def run(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_run(pk)
    return render(request, "run.html", context_of(found) | {"link": link_by(request, getattr(found, "share", None))})


def link_by(request: HttpRequest, share: Share | None) -> str:
    """The whole address of a secret link, for those of the team to give away; empty if there is none."""
    return request.build_absolute_uri(share.get_absolute_url()) if share and request.user.is_authenticated else ""


def live(request: HttpRequest, pk: int) -> HttpResponse:
    """What changes: progress always; the results beside it when the page has not seen them yet."""
    context = context_of(get_run(pk))
    context["changed"] = request.GET.get("seen") != context["seen"]
    return render(request, "_live.html", context)


@require_POST
def cancel(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_run(pk)
    messages.info(request, run.cancel())
    return redirect(run)


# --- the table in other forms -----------------------------------------------------------------------------------------


def download(content: str, kind: str, name: str) -> HttpResponse:
    return HttpResponse(content, content_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def table_csv(request: HttpRequest, pk: int) -> HttpResponse:
    table = tables.rows([m.as_event() for m in measurements(get_run(pk))])
    return download(tables.as_csv(table), "text/csv; charset=utf-8", f"run-{pk}.csv")


def table_md(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_run(pk)
    table = tables.rows([m.as_event() for m in measurements(found)])
    environment, link = (
        found.environment.body if found.environment else {},
        request.build_absolute_uri(found.get_absolute_url()),
    )
    return download(
        tables.as_markdown(table, tables.heading(found.title or f"Run {pk}", environment, link)),
        "text/markdown; charset=utf-8",
        f"run-{pk}.md",
    )


def table_json(request: HttpRequest, pk: int) -> HttpResponse:
    """Everything that was measured, raw samples included: what another site can load."""
    found = get_run(pk)
    events = [m.as_event(raw=True) for m in measurements(found, raw=True)]
    when = found.started_at or found.created_at
    data = {
        "format": tables.FORMAT,
        "title": found.title,
        "config": found.config,
        "measured_at": when.isoformat(timespec="seconds"),
        "environment": found.environment.body if found.environment else {},
        "fingerprint": found.environment.fingerprint if found.environment else "",
        "preflight": found.preflight,
        "state": found.state,
        "table": tables.rows(events),
        "measurements": events,
    }
    return JsonResponse(data)


def config_yaml(request: HttpRequest, pk: int) -> HttpResponse:
    """The config as a file for `python -m kernels run`."""
    run = get_run(pk)
    body = json.loads(json.dumps(run.config)) | {"title": run.title}
    return download(yaml.safe_dump(body, sort_keys=False), "application/yaml", f"run-{pk}.yaml")


# --- charts -----------------------------------------------------------------------------------------------------------


def _chart(request: HttpRequest, pk: int, name: str) -> Any:
    theme = request.GET.get("theme", "light")
    if name not in NAMES or theme not in THEMES:
        raise Http404(f"there is no chart '{name}' in '{theme}'")
    chart = chart_of(get_run(pk), name, theme)
    if chart is None:
        raise Http404("nothing to draw yet")
    return chart


def chart_json(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    return JsonResponse(_chart(request, pk, name).spec)


def chart_svg(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    return HttpResponse(_chart(request, pk, name).svg, content_type="image/svg+xml")
