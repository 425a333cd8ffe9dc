"""What can be read of results, kernels and devices: the pages' own rows, as JSON with an ETag."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Path, Query

from runs.api import parameters, schemas
from runs.api.answers import as_json, not_a_cursor, number_of, only, tagged
from runs.api.problems import Problem
from runs.api.routes import ROUTER, answers
from runs.models import ApiToken, Config, Submission
from runs.queries import history, results, submissions
from runs.queries.results import Key
from runs.views import changes, gpus, kernels, leaderboard
from runs.views import results as results_page
from runs.views.submissions import found as submission_named


@ROUTER.get("/me", response=answers(schemas.Me), tags=["account"])
def me(request: HttpRequest) -> HttpResponse:
    """The account that sends the request, and the rights of its token."""
    token = getattr(request, "auth", None)
    body: dict[str, Any] = {"user": request.user.get_username(), "writes": False, "expires_at": None}
    if isinstance(token, ApiToken):
        body |= {"writes": token.writes, "expires_at": token.expires_at.isoformat()}
    return as_json(request, body | {"site": request.build_absolute_uri(reverse("overview"))})


# --- results ----------------------------------------------------------------------------------------------------------


@ROUTER.get("/results", response=answers(schemas.ResultsPage), tags=["results"])
def list_results(request: HttpRequest, asked: Query[parameters.ResultsAsked]) -> HttpResponse:
    """All results of all users, with the filters and the sort order of /results/. An unknown filter is an error."""
    only(request, asked)
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
def board(request: HttpRequest, asked: Query[parameters.BoardAsked]) -> HttpResponse:
    """The best kernel on each workload and GPU model. A row compares kernels on one card with the same versions."""
    only(request, asked)
    return tagged(request, leaderboard.leaderboard_json(request))


@ROUTER.get("/changes", response=answers(schemas.ChangesOut), tags=["results"])
def list_changes(request: HttpRequest, asked: Query[parameters.ChangesAsked]) -> HttpResponse:
    """What got slower or faster, and when."""
    only(request, asked)
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
    request: HttpRequest, operation: Path[str], name: Path[str], key: Path[str], asked: Query[parameters.HistoryAsked]
) -> HttpResponse:
    """A kernel's results on one workload, newest first."""
    only(request, asked)
    return _history(request, operation, name, asked, key)


@ROUTER.get("/kernels/{slug:operation}/{path:name}", response=answers(schemas.HistoryOut), tags=["kernels"])
def history_of(
    request: HttpRequest, operation: Path[str], name: Path[str], asked: Query[parameters.HistoryAsked]
) -> HttpResponse:
    """A kernel's results on every workload, newest first."""
    only(request, asked)
    return _history(request, operation, name, asked)


def _history(
    request: HttpRequest, operation: str, name: str, asked: parameters.HistoryAsked, key: str = ""
) -> HttpResponse:
    before, subject = number_of(asked.cursor), kernels.Subject.of(request, operation, name, key, most=1)
    found = history.page(subject.kernel, subject.environments, key, before, asked.limit + 1)
    shown = found[: asked.limit]
    more = str(shown[-1]["result"]) if len(found) > asked.limit else None
    return as_json(request, {"kernel": f"{operation}/{name}", "results": shown, "next": more})


@ROUTER.get("/submissions", response=answers(schemas.SubmissionsPage), tags=["kernels"])
def list_submissions(request: HttpRequest, asked: Query[parameters.SubmissionsAsked]) -> HttpResponse:
    """Submissions, newest first, each with its newest result, without their files."""
    only(request, asked)
    before = number_of(asked.cursor)
    stored = submissions.asked(asked.q, asked.operation)
    page = list((stored if before is None else stored.filter(pk__lt=before))[: asked.limit + 1])
    shown = page[: asked.limit]
    more = str(shown[-1].pk) if len(page) > asked.limit else None
    last = submissions.last_results(shown)
    lines = [submission_line(request, one, last.get(one.pk)) for one in shown]
    return as_json(request, {"submissions": lines, "next": more})


@ROUTER.get("/submissions/{slug:version}", response=answers(schemas.SubmissionOut), tags=["kernels"])
def one_submission(request: HttpRequest, version: Path[str]) -> HttpResponse:
    """A submission with its files."""
    one = submission_named(version)
    last = submissions.last_results([one]).get(one.pk)
    return as_json(request, submission_line(request, one, last) | {"files": one.files, "git": one.git})


def submission_line(request: HttpRequest, one: Submission, last: submissions.Last | None) -> dict[str, Any]:
    return {
        "submission": one.version, "kernel": one.kernel, "operation": one.operation, "backend": one.backend,
        "message": one.message, "by": one.user.get_username() if one.user else "",
        "parent": one.parent.version if one.parent else None, "created_at": one.created_at.isoformat(),
        "url": request.build_absolute_uri(one.get_absolute_url()), "newest": last.as_dict() if last else None,
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
    """A complete config, as POST /runs accepts it in `config`."""
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
