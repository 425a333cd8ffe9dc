"""What can be read of runs: lists, progress, results with their profiles, searches, comparisons, and the gate's verdict."""

from __future__ import annotations

import json

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Path, Query

from kernels.report import comparison, comparison_summary, gate, searches, summary, tables
from runs.api import bodies, gating, parameters, schemas
from runs.api.access import Token
from runs.api.answers import as_json, etag_of, number_of, only, tagged, unchanged
from runs.api.problems import Problem
from runs.api.routes import ROUTER, answers
from runs.models import Run
from runs.models.run import FINAL
from runs.queries import measurements
from runs.queries.live import doing
from runs.queries.queue import forecast
from runs.queries.searches import search_of
from runs.views import compare_many as many
from runs.views import profiles, runs
from runs.views import result as result_page
from runs.views import run as run_page
from runs.views.compare import Pair


@ROUTER.get("/runs", response=answers(schemas.RunsPage), tags=["runs"])
def list_runs(request: HttpRequest, asked: Query[parameters.RunsAsked]) -> HttpResponse:
    """Runs, newest first, without their results."""
    only(request, asked)
    if asked.state and asked.state not in Run.State.values:
        said = f"state: {asked.state!r} is not a state; there are {', '.join(Run.State.values)}."
        raise Problem(422, "Wrong parameter", said, field="state")
    if asked.by not in ("", "me"):
        raise Problem(422, "Wrong parameter", "by: there is only `me`.", field="by")
    before = number_of(asked.cursor)
    chosen = runs.chosen(request)
    page = list((chosen if before is None else chosen.filter(pk__lt=before))[: asked.limit + 1])
    shown = page[: asked.limit]
    more = str(shown[-1].pk) if len(page) > asked.limit else None
    return as_json(request, {"runs": runs.records(request, shown), "next": more})


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
        "place": place and place.place, "progress": doing(run), "contended": run.contended,
    }  # fmt: skip
    etag = etag_of(json.dumps(body))
    if same := unchanged(request, etag):
        return same
    table = tables.rows(measurements.of_run(run), run.contended)
    text = f"{tables.as_text(table)}\n\n{summary.as_text(table, run.contended)}" if table else ""
    return as_json(request, body | {"results": list(tables.as_records(table)), "text": text}, etag)


@ROUTER.get("/compare/{id:before}...{id:after}", response=answers(schemas.Compared, 409), tags=["runs"])
def compare(request: HttpRequest, before: Path[int], after: Path[int]) -> HttpResponse:
    """What changed from one run to another, kernel by kernel."""
    pair = Pair.of(before, after)
    if pair.why:
        raise Problem(409, "Not comparable", pair.why)
    text = f"{comparison.as_text(pair.table)}\n{comparison_summary.summary(pair.table)}"
    url = request.build_absolute_uri(reverse("compare", args=[before, after]))
    rows = comparison.as_records(pair.table)
    return as_json(request, {"before": before, "after": after, "rows": rows, "text": text, "url": url})


@ROUTER.get("/compare", response=answers(schemas.ComparedMany), tags=["runs"])
def compare_many(request: HttpRequest, asked: Query[parameters.CompareAsked]) -> HttpResponse:
    """Runs side by side, also of several cards: each kernel's speedup over the baseline of its own run. Between runs of one
    card and fingerprint, what changed since the first."""
    only(request, asked)
    answer = many.compare_many_json(request)
    if answer.status_code == 422:
        raise Problem(422, "Wrong parameter", json.loads(answer.content)["problem"], field="runs")
    return tagged(request, answer)


def _run(pk: int) -> Run:
    try:
        return run_page.get_run(pk)
    except Http404:
        raise Http404(f"There is no run {pk}.") from None


@ROUTER.post("/gate", response=answers(schemas.GateOut, 400, 413), tags=["runs"], auth=[Token()])
def judge(request: HttpRequest, sent: bodies.GateIn) -> HttpResponse:
    """Checks whether a kernel in this run is slower than in earlier runs by more than the limit."""
    now = gating.Side.of(sent.run)
    report = gating.report(now, sent)
    url = request.build_absolute_uri(now.run.get_absolute_url()) if now.run else ""
    words = {"text": gate.as_text(report), "markdown": gate.as_markdown(report, url), "junit": gate.as_junit(report)}
    return as_json(request, report.record() | words | {"url": url})


# --- single results and searches ---------------------------------------------------------------------------------------


@ROUTER.get("/runs/{id:pk}/results/{id:result}", response=answers(schemas.ResultOut), tags=["runs"])
def one_result(request: HttpRequest, pk: Path[int], result: Path[int]) -> HttpResponse:
    """A result with its raw samples, source and measurement."""
    return tagged(request, result_page.result_json(request, pk, result))


@ROUTER.get("/runs/{id:pk}/results/{id:result}/profile", response=answers(schemas.ProfileOut), tags=["runs"])
def profile_of(request: HttpRequest, pk: Path[int], result: Path[int]) -> HttpResponse:
    """The newest profile of a result's kernel: counters, timeline, diagnosis."""
    return tagged(request, profiles.profile_json(request, pk, result))


@ROUTER.get("/runs/{id:pk}/search", response=answers(schemas.SearchOut), tags=["runs"])
def one_search(request: HttpRequest, pk: Path[int]) -> HttpResponse:
    """A search for the best settings of a kernel: its trials, its finalists, and what was found."""
    run = _run(pk)
    if not run.tune:
        raise Http404(f"Run {pk} is not a search.")
    search = search_of(run)
    said = {"run": run.pk, "state": run.state, "answer": searches.answer(search), "curse": searches.curse(search)}
    return as_json(request, said | {"search": search.model_dump(mode="json")})
