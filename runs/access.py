"""Access: who is logged in reads everything and does what its role allows; a secret link shows only what it shares."""

from __future__ import annotations

import contextlib
import zoneinfo
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from runs.models import Role, Run, Share
from runs.models.person import may, owns, role_of
from runs.models.share import TOKEN

OF_A_RUN = frozenset({
    "run", "run_live", "run_csv", "run_json", "run_jsonl", "run_md", "run_yaml", "chart_json", "chart_svg", "chart_png", "result",
    "result_csv", "result_json", "result_chart_json", "result_chart_svg", "result_chart_png", "result_profile_json",
    "result_profile_txt", "result_profile_trace",
})  # fmt: skip
"""Names of the addresses that a run's link opens; each has the run's number as `pk`."""
OF_A_SESSION = frozenset({
    "session_report", "session_md", "session_html", "session_chart_json", "session_chart_svg", "session_chart_png",
})  # fmt: skip
"""The same of a session's report."""
STATUS = "status"
"""Where one status page was, before there were several: its old links lead on."""
MOST_LINKS = 50
"""Newest links kept in the cookie of a visitor without an account."""
COOKIE, KEPT_S = "shares", 14 * 24 * 3600
OF_ENGINEERS = frozenset({
    "new_run", "estimate", "submit", "new_session", "edit_session", "new_status", "edit_status", "new_tier_scale",
    "name_run", "tune",
})  # fmt: skip
"""Pages that are only of use to who may save their form. Everything that is not a GET is of engineers, too, but for:"""
OF_EVERYBODY = frozenset({
    "login", "logout", "password_change", "tokens", "revoke_token", "compare_with", "compare_many", "judge", "settings",
    "choose_mail", "delete_webhook",
})  # fmt: skip
"""What a viewer may post: about its own account, and questions."""
OF_ADMINS = frozenset({"audit", "people", "person_role", "person_state", "person_reset"})
"""For an admin, whatever the method."""
NEEDS = {
    Role.ENGINEER: "A viewer can only read. An admin can make you an engineer.",
    Role.ADMIN: "This page is for admins.",
}


def least_role(name: str, method: str) -> Role:
    """The role that an address needs of somebody who is logged in."""
    if name in OF_ADMINS:
        return Role.ADMIN
    changes = method not in ("GET", "HEAD", "OPTIONS") and name not in OF_EVERYBODY
    return Role.ENGINEER if changes or name in OF_ENGINEERS else Role.VIEWER


def person(request: HttpRequest) -> User | None:
    """Who asks; None: nobody who is logged in."""
    return request.user if isinstance(request.user, User) else None


def own_only(request: HttpRequest, run: Run, what: str) -> None:
    """Raises PermissionDenied unless this person may cancel and withdraw the run."""
    if not owns(request.user, run):
        raise PermissionDenied(f"Only the person who launched run {run.pk}, or an admin, can {what}.")


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
        if refused is None and request.user.is_authenticated:
            _check_role(request)
            _at_home(request)
        if refused and request.headers.get("HX-Request"):
            # A poll must not replace the page by the login form; a form in progress must survive a reload.
            match = request.resolver_match
            typing = match is not None and match.url_name == "estimate"
            return HttpResponse(status=204, headers={} if typing else {"HX-Refresh": "true"})
        return refused

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        timezone.deactivate()
        if getattr(request, "shared", False):
            response.headers["X-Robots-Tag"] = "noindex"
        if shares := getattr(request, "new_shares", None):
            options: dict[str, Any] = {"httponly": True, "samesite": "Lax", "secure": request.is_secure()}
            response.set_signed_cookie(COOKIE, ".".join(shares), salt=COOKIE, max_age=KEPT_S, **options)
        return response


def of_person(request: HttpRequest) -> dict[str, Any]:
    """For templates: the role of this person, and how it wants pages."""
    user: Any = getattr(request, "user", None)
    role = role_of(user)
    if role is None:
        return {"role": "", "may_write": False, "is_admin": False, "theme": ""}
    theme = getattr(getattr(user, "person", None), "theme", "")
    return {"role": role.value, "may_write": role != Role.VIEWER, "is_admin": role == Role.ADMIN, "theme": theme}


def _at_home(request: HttpRequest) -> None:
    """Times are those of this person's place."""
    zone = getattr(getattr(request.user, "person", None), "time_zone", "")
    if zone:
        with contextlib.suppress(
            zoneinfo.ZoneInfoNotFoundError, ValueError, OSError
        ):  # a place that is gone: the site's times
            timezone.activate(zoneinfo.ZoneInfo(zone))


def _check_role(request: HttpRequest) -> None:
    match = request.resolver_match
    needed = least_role((match.url_name or "") if match else "", request.method or "")
    if not may(request.user, needed):
        raise PermissionDenied(NEEDS[needed])


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
