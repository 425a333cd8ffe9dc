"""Tokens for the pages' files: whatever has a name such as table.csv or chart.svg can be read with a token, too."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase

from runs.api import problems
from runs.api.access import READS, Token
from runs.api.answers import tagged
from runs.api.problems import Problem

FILE = re.compile(r"/[^/]+\.(csv|html|json|json\.gz|jsonl|md|png|svg|txt|yaml)\Z")
API = "/api/"


class TokensOpenFiles:
    """Logs in the owner of a token for one request. Pages and everything that writes need the session of a browser."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        is_file = request.method in ("GET", "HEAD") and FILE.search(request.path) and not request.path.startswith(API)
        if kind.lower() != "bearer" or not is_file:
            return self.get_response(request)
        try:
            self._log_in(request, token)
        except Problem as problem:
            return problems.of_problem(request, problem)
        answer = self.get_response(request)
        if answer.status_code != 200 or not isinstance(answer, HttpResponse):
            return answer
        return tagged(request, answer, answer.headers.get("ETag", ""))

    def _log_in(self, request: Any, token: str) -> None:
        request.auth = Token().authenticate(request, token)
        if not READS.allow_request(request):
            raise problems.too_many(READS.wait())
