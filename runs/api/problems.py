"""Errors as application/problem+json (RFC 9457): each says what to change."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.defaults import server_error
from ninja.errors import HttpError, Throttled, ValidationError

KIND = "application/problem+json"
LONGEST_NAME = 60
TYPE = re.compile(r"[a-z-]+\[.*\]$")
"""What pydantic adds to the place of a fault in a union: tagged-union[...], list[...]."""


class Problem(Exception):
    """An answer that says what to change. more: other members of its body, such as `field`."""

    def __init__(self, status: int, title: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.body = status, {"title": title, "status": status, "detail": detail} | more


def answer_of(error: Problem, headers: Mapping[str, str] | None = None) -> HttpResponse:
    answer = JsonResponse(error.body, status=error.status, content_type=KIND, headers=dict(headers or {}))
    if error.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if "retry_after" in error.body:
        answer.headers["Retry-After"] = str(error.body["retry_after"])
    return answer


def of_problem(request: HttpRequest, error: Any) -> HttpResponse:
    return answer_of(error)


def of_no_access(request: HttpRequest, error: Any) -> HttpResponse:
    said = "Send the header `Authorization: Bearer TOKEN`; the page /tokens/ makes tokens."
    return answer_of(Problem(401, "No token", said))


def of_nothing(request: HttpRequest, error: Any) -> HttpResponse:
    said = str(error)
    if not said or "matches the given query" in said:
        said = "Nothing was found at this address."
    return answer_of(Problem(404, "Not found", said))


def of_fields(request: HttpRequest, error: ValidationError) -> HttpResponse:
    """The first field that is wrong by name, and all of them in `errors`."""
    errors = [{"field": _name(one["loc"]), "detail": one["msg"]} for one in error.errors]
    first = errors[0] if errors else {"field": "body", "detail": "it cannot be read"}
    said = f"{first['field']}: {first['detail'][:1].lower()}{first['detail'][1:]}."
    return answer_of(Problem(422, "Wrong field", said, field=first["field"], errors=errors))


def _name(place: tuple[str | int, ...]) -> str:
    """("query", "limit") and ("body", "sent", "files", "a.py") -> "limit", "files.a.py". Without the names of types that a value
    was tried as."""
    parts = [part for part in place[2 if place[0] == "body" else 1 :] if not TYPE.match(str(part))]
    return ".".join(str(part)[:LONGEST_NAME] for part in parts) or "body"


def of_http(request: HttpRequest, error: HttpError) -> HttpResponse:
    if error.status_code == 400:
        return answer_of(Problem(400, "No JSON", "The body must be a JSON object in UTF-8."))
    return answer_of(Problem(error.status_code, "Refused", str(error)))


def of_haste(request: HttpRequest, error: Throttled) -> HttpResponse:
    return of_problem(request, too_many(error.wait))


def too_many(wait_s: float | None) -> Problem:
    wait = math.ceil(wait_s or 1)
    said = f"Too many requests with this token: ask again in {wait} s. A run is watched with If-None-Match."
    return Problem(429, "Too many requests", said, retry_after=wait)


def fault(request: HttpRequest) -> HttpResponse:
    """A fault of the site: of the API in its form, else as a page."""
    if not request.path.startswith("/api/"):
        return server_error(request)
    said = "Something went wrong on our side. No measurement is lost; the web server's log has the error."
    return answer_of(Problem(500, "Internal server error", said))
