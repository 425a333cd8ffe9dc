"""Access: users see everything; a secret link shows only what it shares, read-only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.crypto import constant_time_compare

from runs.models import Share
from runs.models.share import TOKEN

OF_A_RUN = frozenset({
    "run", "run_live", "run_csv", "run_json", "run_jsonl", "run_md", "run_yaml", "chart_json", "chart_svg", "result",
    "result_csv", "result_json", "result_chart_json", "result_chart_svg",
})  # fmt: skip
"""Names of the addresses that a run's link opens; each has the run's number as `pk`."""
OF_A_SESSION = frozenset({"session_report", "session_md", "session_html", "session_chart_json", "session_chart_svg"})
"""The same of a session's report."""
STATUS = "status"
"""Where one status page was, before there were several: its old links lead on."""
MOST_LINKS = 50
"""Newest links kept in the cookie of a visitor without an account."""
COOKIE, KEPT_S = "shares", 14 * 24 * 3600


def may_watch(request: HttpRequest) -> bool:
    """Whether this request may read /metrics: it has METRICS_TOKEN; where none is set, it comes from this host."""
    if settings.METRICS_TOKEN:
        return constant_time_compare(request.headers.get("Authorization", ""), f"Bearer {settings.METRICS_TOKEN}")
    return request.META.get("REMOTE_ADDR") in ("127.0.0.1", "::1")


class LoggedInOrShared(LoginRequiredMiddleware):
    """Keeps the link in a signed cookie, so that the page's charts and files open, too. The database keeps nothing."""

    def process_view(
        self, request: HttpRequest, view_func: Callable[..., Any], view_args: Any, view_kwargs: Any
    ) -> HttpResponseBase | None:
        if not getattr(view_func, "login_required", True):
            return None  # it asks neither who it is nor the database, which may be down
        if not request.user.is_authenticated and (opened := _by_link(request)):
            return None if opened is True else opened
        refused = super().process_view(request, view_func, view_args, view_kwargs)
        if refused and request.headers.get("HX-Request"):
            # A poll must not replace the page by the login form; a form in progress must survive a reload.
            match = request.resolver_match
            typing = match is not None and match.url_name == "estimate"
            return HttpResponse(status=204, headers={} if typing else {"HX-Refresh": "true"})
        return refused

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if getattr(request, "shared", False):
            response.headers["X-Robots-Tag"] = "noindex"
        if shares := getattr(request, "new_shares", None):
            options: dict[str, Any] = {"httponly": True, "samesite": "Lax", "secure": request.is_secure()}
            response.set_signed_cookie(COOKIE, ".".join(shares), salt=COOKIE, max_age=KEPT_S, **options)
        return response


def _shown(match: Any) -> dict[str, int]:
    """What an address shows: a run, a session, or neither."""
    kind = "run" if match.url_name in OF_A_RUN else "session" if match.url_name in OF_A_SESSION else ""
    return {kind: match.kwargs["pk"]} if kind else {}


def _by_link(request: HttpRequest) -> HttpResponse | bool:
    """Whether a link opens what is asked for; an answer in its place for a link that has ended."""
    match = request.resolver_match
    if match is None or request.method not in ("GET", "HEAD"):
        return False
    asked, what = request.GET.get("share", ""), _shown(match)
    if match.url_name == STATUS and TOKEN.fullmatch(asked):
        return redirect("wall", asked)
    if not what:
        return False
    kept = request.get_signed_cookie(COOKIE, default="", salt=COOKIE, max_age=KEPT_S) or ""
    known = kept.split(".")
    found = {share.token: share for share in Share.objects.known([asked, *known], **what)}
    live = next((share for share in found.values() if share.is_live), None)
    if live is None:
        return closed(request, next(iter(found.values()))) if found else False
    if asked in found and found[asked].is_live:
        found[asked].note_open()
        if asked not in known:
            request.new_shares = [asked, *filter(None, known)][:MOST_LINKS]  # type: ignore[attr-defined]
    request.shared = True  # type: ignore[attr-defined]
    return True


def closed(request: HttpRequest, share: Share) -> HttpResponse:
    """What a link says after its end. A page that polls is loaded anew, and then says it."""
    answer = render(request, "closed.html", {"share": share}, status=410)
    answer.headers["X-Robots-Tag"] = "noindex"
    if request.headers.get("HX-Request"):
        answer.headers["HX-Refresh"] = "true"
    return answer
