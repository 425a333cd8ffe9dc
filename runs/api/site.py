"""The API of the site: its addresses, its document, and the page that shows the document."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import URLPattern, path, re_path
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, Throttled, ValidationError

from runs.api import problems, reads, routes, run_reads, site_reads, team_reads, writes
from runs.api.problems import Problem

CLIENT = Path(settings.BASE_DIR) / "kernels" / "cli" / "client.py"
View = Callable[..., HttpResponseBase]


class Api(NinjaAPI):
    """Its document says in which form errors come."""

    def get_openapi_schema(self, **more: Any) -> Any:
        document = super().get_openapi_schema(**more)
        for methods in document["paths"].values():
            for one in methods.values():
                for status, answer in one["responses"].items():
                    content = answer.get("content", {})
                    if int(status) >= 400 and "application/json" in content:
                        content[problems.KIND] = content.pop("application/json")
        return document


api = Api(
    title="Benchsite",
    version="1",
    description="What the pages show, and what their forms do. Errors are application/problem+json.",
    docs_url="",
    openapi_url="/openapi.json",
    urls_namespace="api",
)
OPERATIONS = (reads, run_reads, team_reads, site_reads, writes)
"""Modules that put their operations on the router."""
api.add_router("", routes.ROUTER)
api.add_exception_handler(Problem, problems.of_problem)
api.add_exception_handler(AuthenticationError, problems.of_no_access)
api.add_exception_handler(Http404, problems.of_nothing)
api.add_exception_handler(ValidationError, problems.of_fields)  # type: ignore[arg-type]
api.add_exception_handler(HttpError, problems.of_http)  # type: ignore[arg-type]
api.add_exception_handler(Throttled, problems.of_haste)  # type: ignore[arg-type]


def _for_programs(view: View) -> View:
    """Asks for no session, as each operation asks for its own; refuses in the words of the API."""

    @login_not_required
    @csrf_exempt
    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        if int(request.META.get("CONTENT_LENGTH") or 0) > most:
            return problems.answer_of(Problem(413, "Too large", f"A request has at most {most:,} bytes."))
        given = view(request, *args, **kwargs)
        if given.status_code == 405:
            allowed = given.headers.get("Allow", "")
            said = f"This address answers {allowed}, not {request.method}."
            return problems.answer_of(Problem(405, "Wrong method", said), {"Allow": allowed})
        return given

    return answer


def nowhere(request: HttpRequest, rest: str) -> HttpResponse:
    return problems.answer_of(Problem(404, "Not found", "There is nothing at this address: /api/ lists what there is."))


def docs(request: HttpRequest) -> HttpResponse:
    """Every operation with its parameters, from the document."""
    document = api.get_openapi_schema()
    groups: dict[str, list[dict[str, Any]]] = {}
    for address, methods in document["paths"].items():
        for method, one in methods.items():
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            sent = document["components"]["schemas"].get(body.get("$ref", "").rpartition("/")[2], {})
            shown = {
                "method": method.upper(), "address": address, "says": _coded(one.get("description", "")),
                "parameters": [_field(p["name"], p["schema"], p.get("required"), p["in"]) for p in one.get("parameters", [])]
                + [_field(name, of, name in sent.get("required", ()), "body") for name, of in sent.get("properties", {}).items()],
            }  # fmt: skip
            groups.setdefault(one["tags"][0], []).append(shown)
    return render(request, "api.html", {"groups": groups, "site": request.build_absolute_uri("/")})


def _field(name: str, schema: dict[str, Any], required: bool | None, where: str) -> dict[str, Any]:
    kinds = [kind for one in schema.get("anyOf", [schema]) if (kind := one.get("type", "")) != "null"]
    says = _coded(schema.get("description", ""))
    return {"name": name, "kind": " or ".join(filter(None, kinds)), "required": required, "where": where, "says": says}


def _coded(text: str) -> SafeString:
    """Text with what stands between backticks as code."""
    return mark_safe(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))


@login_not_required
def client(request: HttpRequest) -> HttpResponse:
    """The command-line client: one Python file that needs only the standard library."""
    return HttpResponse(CLIENT.read_text(), content_type="text/x-python; charset=utf-8")


def urls() -> list[Any]:
    patterns, namespace, name = api.urls
    kept = [one for one in patterns if isinstance(one, URLPattern)]
    for one in kept:
        one.callback = _for_programs(one.callback)
    return [
        path("api/", docs, name="api_docs"),
        path("api/", (kept, namespace, name)),
        re_path(r"^api/(?P<rest>[\s\S]+)\Z", _for_programs(nowhere), name="api_nowhere"),
        path("client.py", client, name="client"),
    ]
