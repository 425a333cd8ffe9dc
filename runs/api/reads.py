"""What can be read: the pages' own rows, as JSON with an ETag."""

from __future__ import annotations

import json
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Path, Query, Router

from kernels.report import comparison, gate, tables
from runs.api import schemas
from runs.api.access import READING, Token
from runs.api.answers import as_json, etag_of, not_a_cursor, number_of, tagged, unchanged
from runs.api.problems import Problem
from runs.models import ApiToken, Config, Run, Submission
from runs.models.run import FINAL
from runs.queries import measurements, results
from runs.queries.live import doing
from runs.queries.queue import forecast
from runs.queries.results import Key
from runs.views import changes, gpus, history, kernels, leaderboard, runs
from runs.views import results as results_page
from runs.views import run as run_page
from runs.views.compare import OFFERED, Pair, alike, results_of
from runs.views.submissions import found as submission_named

PROBLEMS = frozenset({401, 404, 422, 429})
ROUTER = Router(**READING)


def answers(schema: Any, *more: int) -> dict[Any, Any]:
    """The answers of an operation, for its document."""
    return {200: schema} | dict.fromkeys(sorted({*PROBLEMS, *more}), schemas.ProblemOut)


def lines(request: HttpRequest, of: list[Run]) -> list[dict[str, Any]]:
    """Runs as rows of lists."""
    addresses = {run.pk: request.build_absolute_uri(run.get_absolute_url()) for run in of}
    return [row | {"url": addresses[row["id"]]} for row in runs.records(of)]


@ROUTER.get("/me", response=answers(schemas.Me), tags=["account"])
def me(request: HttpRequest) -> HttpResponse:
    """Who asks, and what the token may do."""
    token = getattr(request, "auth", None)
    body: dict[str, Any] = {"user": request.user.get_username(), "writes": False, "expires_at": None}
    if isinstance(token, ApiToken):
        body |= {"writes": token.writes, "expires_at": token.expires_at.isoformat()}
    return as_json(request, body | {"site": request.build_absolute_uri(reverse("overview"))})


# --- runs -------------------------------------------------------------------------------------------------------------


@ROUTER.get("/runs", response=answers(schemas.RunsPage), tags=["runs"])
def list_runs(request: HttpRequest, asked: Query[schemas.RunsAsked]) -> HttpResponse:
    """Runs, newest first, without their results."""
    before = number_of(asked.cursor)
    chosen = runs.chosen(request)
    page = list((chosen if before is None else chosen.filter(pk__lt=before))[: asked.limit + 1])
    shown = page[: asked.limit]
    more = str(shown[-1].pk) if len(page) > asked.limit else None
    return as_json(request, {"runs": lines(request, shown), "next": more})


@ROUTER.get("/runs/{id:pk}", response=answers(schemas.RunOut), tags=["runs"])
def one_run(request: HttpRequest, pk: Path[int]) -> HttpResponse:
    """Everything about a run, with raw samples: the same as /runs/N.json."""
    _run(pk)
    return tagged(request, run_page.table_json(request, pk))


@ROUTER.get("/runs/{id:pk}/progress", response=answers(schemas.Progress), tags=["runs"])
def progress(request: HttpRequest, pk: Path[int]) -> HttpResponse:
    """State, progress and table. Poll it with If-None-Match: while nothing changes, the answer is 304 and costs no reading
    of results."""
    run = Run.objects.for_list().filter(pk=pk).first()
    if run is None:
        raise Http404(f"There is no run {pk}.")
    place = forecast(run)
    body = {
        "id": run.pk, "title": run.title, "state": run.state, "final": run.state in FINAL, "done": run.done,
        "total": run.total, "message": run.message, "device": run.gpu.name if run.gpu else run.device_name,
        "created_at": run.created_at.isoformat(), "url": request.build_absolute_uri(run.get_absolute_url()),
        "place": place and place.place, "progress": doing(run),
    }  # fmt: skip
    etag = etag_of(json.dumps(body))
    if same := unchanged(request, etag):
        return same
    table = tables.rows(measurements.of_run(run))
    text = tables.as_text(table) if table else ""
    return as_json(request, body | {"results": list(tables.as_records(table)), "text": text}, etag)


@ROUTER.get("/compare/{id:before}...{id:after}", response=answers(schemas.Compared, 409), tags=["runs"])
def compare(request: HttpRequest, before: Path[int], after: Path[int]) -> HttpResponse:
    """What changed from one run to another, kernel by kernel."""
    pair = Pair.of(before, after)
    if pair.why:
        raise Problem(409, "Not comparable", pair.why)
    text = f"{comparison.as_text(pair.table)}\n{comparison.summary(pair.table)}"
    url = request.build_absolute_uri(reverse("compare", args=[before, after]))
    rows = comparison.as_records(pair.table)
    return as_json(request, {"before": before, "after": after, "rows": rows, "text": text, "url": url})


def _run(pk: int) -> Run:
    try:
        return run_page.get_run(pk)
    except Http404:
        raise Http404(f"There is no run {pk}.") from None


@ROUTER.post("/gate", response=answers(schemas.GateOut, 400, 413), tags=["runs"], auth=[Token()])
def judge(request: HttpRequest, sent: schemas.GateIn) -> HttpResponse:
    """Did a kernel get slower than it may, from earlier runs to this one?"""
    run = _run(sent.run)
    if sent.against == "best":
        earlier = list(alike(run).filter(pk__lt=run.pk, contended=False, withdrawn_at=None)[:OFFERED])
    else:
        earlier = [_run(pk) for pk in dict.fromkeys(sent.against[:OFFERED])]
    before = [(f"run {one.pk}", results_of(one, measurements.of_run(one))) for one in earlier]
    report = gate.gate(results_of(run, measurements.of_run(run)), before, sent.max_regression, sent.kernels)
    url = request.build_absolute_uri(run.get_absolute_url())
    words = {"text": gate.as_text(report), "markdown": gate.as_markdown(report, url), "junit": gate.as_junit(report)}
    return as_json(request, report.record() | words | {"url": url})


# --- results ----------------------------------------------------------------------------------------------------------


@ROUTER.get("/results", response=answers(schemas.ResultsPage), tags=["results"])
def list_results(request: HttpRequest, asked: Query[schemas.ResultsAsked]) -> HttpResponse:
    """Every result of everybody, filtered and sorted as on /results/. What is not understood is refused."""
    search = results_page.Asked.of(request)
    if refusal := search.refusal:
        raise Problem(422, "Wrong parameter", refusal.content.decode())
    after = Key.of(asked.cursor)
    if asked.cursor and after is None:
        raise not_a_cursor()
    page = results.page(search.search, search.order, after, asked.limit + 1)
    shown = page[: asked.limit]
    rows = [results_page.record(search, one) for one in shown]
    return as_json(request, {"results": rows, "next": shown[-1].key.text if len(page) > asked.limit else None})


@ROUTER.get("/leaderboard", response=answers(schemas.BoardOut), tags=["results"])
def board(request: HttpRequest, asked: Query[schemas.BoardAsked]) -> HttpResponse:
    """Who is best on each workload and GPU model."""
    return tagged(request, leaderboard.leaderboard_json(request))


@ROUTER.get("/changes", response=answers(schemas.ChangesOut), tags=["results"])
def list_changes(request: HttpRequest, asked: Query[schemas.ChangesAsked]) -> HttpResponse:
    """What got slower or faster, and when."""
    return tagged(request, changes.changes_json(request))


# --- kernels ----------------------------------------------------------------------------------------------------------


@ROUTER.get("/kernels", response=answers(schemas.KernelsOut), tags=["kernels"])
def list_kernels(request: HttpRequest) -> HttpResponse:
    """Kernels that were measured or that a device reports."""
    return tagged(request, kernels.kernels_json(request))


@ROUTER.get(
    "/kernels/{slug:operation}/{path:name}/on/{slug:key}", response=answers(schemas.HistoryOut), tags=["kernels"]
)
def history_on(
    request: HttpRequest, operation: Path[str], name: Path[str], key: Path[str], asked: Query[schemas.HistoryAsked]
) -> HttpResponse:
    """A kernel's results on one workload, newest first."""
    return tagged(request, history.history_json(request, operation, name, key))


@ROUTER.get("/kernels/{slug:operation}/{path:name}", response=answers(schemas.HistoryOut), tags=["kernels"])
def history_of(
    request: HttpRequest, operation: Path[str], name: Path[str], asked: Query[schemas.HistoryAsked]
) -> HttpResponse:
    """A kernel's results on every workload, newest first."""
    return tagged(request, history.history_json(request, operation, name))


@ROUTER.get("/submissions", response=answers(schemas.SubmissionsPage), tags=["kernels"])
def list_submissions(request: HttpRequest, asked: Query[schemas.Cursor]) -> HttpResponse:
    """Submissions, newest first, without their files."""
    before = number_of(asked.cursor)
    stored = Submission.objects.select_related("user", "parent").defer("files", "parent__files")
    page = list((stored if before is None else stored.filter(pk__lt=before))[: asked.limit + 1])
    shown = page[: asked.limit]
    more = str(shown[-1].pk) if len(page) > asked.limit else None
    return as_json(request, {"submissions": [submission_line(request, one) for one in shown], "next": more})


@ROUTER.get("/submissions/{slug:version}", response=answers(schemas.SubmissionOut), tags=["kernels"])
def one_submission(request: HttpRequest, version: Path[str]) -> HttpResponse:
    """A submission with its files."""
    one = submission_named(version)
    return as_json(request, submission_line(request, one) | {"files": one.files, "git": one.git})


def submission_line(request: HttpRequest, one: Submission) -> dict[str, Any]:
    return {
        "submission": one.version, "kernel": one.kernel, "operation": one.operation, "backend": one.backend,
        "message": one.message, "by": one.user.get_username() if one.user else "",
        "parent": one.parent.version if one.parent else None, "created_at": one.created_at.isoformat(),
        "url": request.build_absolute_uri(one.get_absolute_url()),
    }  # fmt: skip


# --- where and what to measure ----------------------------------------------------------------------------------------


@ROUTER.get("/devices", response=answers(schemas.DevicesOut), tags=["devices"])
def list_devices(request: HttpRequest) -> HttpResponse:
    """Devices that an agent has reported, with their state."""
    return tagged(request, gpus.gpus_json(request))


@ROUTER.get("/devices/{id:pk}", response=answers(dict[str, Any]), tags=["devices"])
def one_device(request: HttpRequest, pk: Path[int]) -> HttpResponse:
    """A device with all its calibrations."""
    return tagged(request, gpus.gpu_json(request, pk))


@ROUTER.get("/configs", response=answers(schemas.ConfigsOut), tags=["devices"])
def list_configs(request: HttpRequest) -> HttpResponse:
    """Configs of the site, by name."""
    return as_json(request, {"configs": [_config(one) for one in Config.objects.all()]})


@ROUTER.get("/configs/{name}", response=answers(dict[str, Any]), tags=["devices"])
def one_config(request: HttpRequest, name: Path[str]) -> HttpResponse:
    """A config whole: what POST /runs takes as `config`."""
    one = Config.objects.filter(name=name.replace("\x00", "")).first()
    if one is None:
        raise Http404(f"There is no config {name[:80]!r}.")
    return as_json(request, one.body)


def _config(one: Config) -> dict[str, Any]:
    spec = one.spec
    kernels_of = dict.fromkeys(name for operation in spec.operations for name in spec.kernels_of(operation))
    return {
        "name": one.name, "title": one.title, "operations": list(spec.operations), "workloads": len(spec.workloads),
        "kernels": list(kernels_of),
    }  # fmt: skip
