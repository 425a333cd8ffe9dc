"""Access: users see everything; a secret link shows only what it shares, read-only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from runs.models import Share

OF_A_RUN = frozenset({
    "run", "run_live", "run_csv", "run_json", "run_md", "run_yaml", "chart_json", "chart_svg", "result", "result_csv",
    "result_json", "result_chart_json", "result_chart_svg",
})  # fmt: skip
"""Names of the addresses that a run's link opens; each has the run's number as `pk`."""
STATUS = "status"
MOST_LINKS = 50
"""Newest links kept in the session of a visitor without an account."""


class LoggedInOrShared(LoginRequiredMiddleware):
    """Keeps the link in the session, so that the page's charts and files open, too."""

    def process_view(
        self, request: HttpRequest, view_func: Callable[..., Any], view_args: Any, view_kwargs: Any
    ) -> HttpResponseBase | None:
        if not request.user.is_authenticated and _is_shared(request):
            return None
        refused = super().process_view(request, view_func, view_args, view_kwargs)
        if refused and request.headers.get("HX-Request"):
            # A poll must not replace the page by the login form; a form in progress must survive a reload.
            match = request.resolver_match
            typing = match is not None and match.url_name == "estimate"
            return HttpResponse(status=204, headers={} if typing else {"HX-Refresh": "true"})
        return refused


def _is_shared(request: HttpRequest) -> bool:
    match = request.resolver_match
    if match is None or request.method not in ("GET", "HEAD") or match.url_name not in OF_A_RUN | {STATUS}:
        return False
    run = None if match.url_name == STATUS else match.kwargs["pk"]
    known: list[str] = request.session.get("shares", [])
    asked = request.GET.get("share", "")
    by_this = asked not in known and Share.objects.opens(run, [asked])
    if not by_this and not Share.objects.opens(run, known):
        return False
    if by_this:
        request.session["shares"] = [asked, *known][:MOST_LINKS]
    request.shared = True  # type: ignore[attr-defined]
    return True
