"""The API of the command line (kernels/cli/client.py). Answers are JSON; errors are application/problem+json.

A token stands in the header: `Authorization: Bearer bench_...`. There is no session and no cookie, so no form of another
site can use it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from redis.exceptions import RedisError

from kernels.catalog import UnknownName
from kernels.formats.adding import with_declaration
from kernels.report import comparison, tables
from kernels.submission import MAX_BYTES, Unreadable
from runs.broker import BrokerKeys
from runs.models import ApiToken, Run, Submission
from runs.models.run import FINAL
from runs.queries import measurements
from runs.submission_form import as_sentence
from runs.submitting import NotSubmitted, config_for, device_for, start_run
from runs.views.compare import Pair
from runs.views.run import get_run
from runs.views.submissions import person

MOST_BODY = 4 * MAX_BYTES
"""Of a request: JSON escapes make a text longer."""
LISTED, MOST_LISTED = 20, 100
CLIENT = Path(settings.BASE_DIR) / "kernels" / "cli" / "client.py"
BEARER = "Bearer "
View = Callable[..., HttpResponseBase]


class Problem(Exception):
    """An answer that says what to change."""

    def __init__(self, status: int, title: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.body = status, {"title": title, "status": status, "detail": detail} | more


def problem(error: Problem) -> HttpResponse:
    answer = JsonResponse(error.body, status=error.status, content_type="application/problem+json")
    if error.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def endpoint(method: str, *, writes: bool = False) -> Callable[[View], View]:
    """A view of the API for one method: needs a token, and one that may write if it writes."""

    def around(view: View) -> View:
        @csrf_exempt
        @login_not_required
        @wraps(view)
        def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                if request.method != method:
                    raise Problem(405, "Wrong method", f"This address answers {method}, not {request.method}.")
                token = _token_of(request)
                if writes and not token.writes:
                    raise Problem(
                        403, "The token may only read", "Make a token with the right to submit and cancel: /tokens/."
                    )
                request.user = token.user
                return view(request, *args, **kwargs)
            except Problem as error:
                return problem(error)
            except Http404 as error:
                return problem(Problem(404, "Not found", str(error) or "There is no such thing."))

        return answer

    return around


def _token_of(request: HttpRequest) -> ApiToken:
    header = request.headers.get("Authorization", "")
    if not header.startswith(BEARER):
        raise Problem(401, "No token", "Send the header `Authorization: Bearer TOKEN`; the page /tokens/ makes tokens.")
    if (token := ApiToken.objects.used(header.removeprefix(BEARER).strip())) is None:
        raise Problem(
            401, "The token is not valid", "It is unknown, expired or revoked; the page /tokens/ makes another."
        )
    return token


def _body_of(request: HttpRequest) -> dict[str, Any]:
    if int(request.headers.get("Content-Length") or 0) > MOST_BODY:
        raise Problem(413, "Too large", f"A request has at most {MOST_BODY:,} bytes.")
    try:
        said = json.loads(request.body)
    except ValueError:
        raise Problem(400, "No JSON", "The body must be a JSON object.") from None
    if not isinstance(said, dict):
        raise Problem(400, "No object", "The body must be a JSON object.")
    return said


def _text(said: dict[str, Any], name: str, longest: int = 2000) -> str:
    value = said.get(name, "")
    if not isinstance(value, str) or len(value) > longest or "\x00" in value:
        raise Problem(422, "Wrong field", f"{name} must be a text of at most {longest} signs.", field=name)
    return value


# --- submissions ------------------------------------------------------------------------------------------------------


@endpoint("POST", writes=True)
def submit(request: HttpRequest) -> HttpResponseBase:
    """{"files": {name: text}, "gpu", "config", "effort", "message", "parent", "note"}: stores the kernel and, with a gpu,
    queues its run."""
    said = _body_of(request)
    files = said.get("files")
    if not isinstance(files, dict) or not all(isinstance(v, str) for v in files.values()):
        raise Problem(422, "Wrong field", "files must be an object: file name -> text.", field="files")
    wanted = {name: _text(said, name) for name in ("gpu", "config", "effort", "message", "parent", "note")}
    parent = None
    if wanted["parent"]:
        parent = Submission.objects.filter(sha256__startswith=wanted["parent"].rpartition("@")[2]).first()
        if parent is None:
            raise Problem(422, "Wrong field", f"There is no submission {wanted['parent']}.", field="parent")
    try:
        gpu = device_for(wanted["gpu"]) if wanted["gpu"] else None
        user = person(request)
        one, new = Submission.objects.store(
            with_declaration(files), user=user, message=wanted["message"].strip(), parent=parent
        )
        run = None
        if gpu is not None:
            config = config_for(one, wanted["config"], wanted["effort"])
            run = start_run(one, gpu, config, user=user, note=wanted["note"])
    except NotSubmitted as error:
        raise Problem(422, "Not submitted", str(error), field={"device": "gpu"}.get(error.field, error.field)) from None
    except (Unreadable, UnknownName) as error:
        raise Problem(422, "No kernel", as_sentence(error), field="files") from None
    body = {
        "submission": one.version, "kernel": one.kernel, "operation": one.operation, "new": new,
        "url": request.build_absolute_uri(one.get_absolute_url()), "run": run and brief(request, run),
    }  # fmt: skip
    return JsonResponse(body, status=201 if new or run else 200)


# --- runs -------------------------------------------------------------------------------------------------------------


def brief(request: HttpRequest, run: Run) -> dict[str, Any]:
    """A run in lists."""
    return {
        "id": run.pk, "title": run.title, "state": run.state, "final": run.state in FINAL, "done": run.done,
        "total": run.total, "message": run.message, "device": run.gpu.name if run.gpu else run.device_name,
        "created_at": run.created_at.isoformat(), "url": request.build_absolute_uri(run.get_absolute_url()),
    }  # fmt: skip


@endpoint("GET")
def runs(request: HttpRequest) -> HttpResponseBase:
    """Newest first. `limit`, and `before`: the number of the last run of the page before."""
    limit, before = _number(request, "limit", LISTED), _number(request, "before", 0)
    listed = Run.objects.for_list()
    listed = listed.filter(pk__lt=before) if before else listed
    page = [brief(request, run) for run in listed[: min(limit, MOST_LISTED)]]
    return JsonResponse({"runs": page, "next": page[-1]["id"] if len(page) == limit else None})


def _number(request: HttpRequest, name: str, usual: int) -> int:
    text = request.GET.get(name, "")
    if text and not (text.isdecimal() and 0 < int(text[:18]) < 10**17):
        raise Problem(422, "Wrong parameter", f"{name} must be a positive whole number.", field=name)
    return int(text[:18]) if text else usual


@endpoint("GET")
def run(request: HttpRequest, pk: int) -> HttpResponseBase:
    """State, progress and results. With an ETag: an unchanged run is answered by 304."""
    shown = get_run(pk)
    table = tables.rows(measurements.of_run(shown))
    body = brief(request, shown) | {
        "place": shown.place_in_queue(), "progress": _progress(shown), "results": tables.as_records(table),
        "text": tables.as_text(table) if table else "",
    }  # fmt: skip
    content = json.dumps(body)
    etag = f'"{hashlib.sha256(content.encode()).hexdigest()[:20]}"'
    if request.headers.get("If-None-Match") == etag:
        return HttpResponse(status=304, headers={"ETag": etag})
    return HttpResponse(content, content_type="application/json", headers={"ETag": etag})


def _progress(shown: Run) -> str:
    """What its device does now, in words."""
    if shown.state in FINAL:
        return ""
    try:
        live = BrokerKeys(settings.REDIS_URL).shown(shown.pk) or {}
    except RedisError:
        return ""
    return " ".join(
        filter(None, [str(live.get("workload", "")), str(live.get("kernel", "")), str(live.get("step", ""))])
    )


@endpoint("POST", writes=True)
def cancel(request: HttpRequest, pk: int) -> HttpResponseBase:
    shown = get_run(pk)
    said = shown.cancel()
    shown.refresh_from_db()
    return JsonResponse(brief(request, shown) | {"said": said})


@endpoint("GET")
def compare(request: HttpRequest, before: int, after: int) -> HttpResponseBase:
    """The change of each kernel between two runs; why there is none, if they cannot be compared."""
    pair = Pair.of(before, after)
    if pair.why:
        raise Problem(409, "Not comparable", pair.why)
    text = f"{comparison.as_text(pair.table)}\n{comparison.summary(pair.table)}"
    body = {"before": before, "after": after, "text": text, "rows": comparison.as_records(pair.table)}
    return JsonResponse(body | {"url": request.build_absolute_uri(reverse("compare", args=[before, after]))})


@endpoint("GET")
def me(request: HttpRequest) -> HttpResponseBase:
    """Whose token it is, and what it may do."""
    token = _token_of(request)
    body = {"user": token.user.get_username(), "writes": token.writes, "expires_at": token.expires_at.isoformat()}
    return JsonResponse(body | {"site": request.build_absolute_uri(reverse("overview"))})


@login_not_required
def client(request: HttpRequest) -> HttpResponse:
    """The command line itself: one file of the standard library."""
    return HttpResponse(CLIENT.read_text(), content_type="text/x-python; charset=utf-8")
