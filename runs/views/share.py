"""Creates and ends secret links to a run, to the report of a session, or to the status page."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from runs.models import Session, Share
from runs.views.run import get_run


@require_POST
def share(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """Creates the link of a run, or of the status page, if it has none."""
    run = get_run(pk) if pk is not None else None
    _create(request, run=run, session=None)
    return redirect(run) if run else redirect("status")


def _create(request: HttpRequest, **what: Any) -> None:
    if not Share.objects.filter(**what).exists():
        by = request.user if request.user.is_authenticated else None
        Share.objects.get_or_create(**what, defaults={"user": by})


@require_POST
def share_session(request: HttpRequest, pk: int) -> HttpResponse:
    """Creates the link of a session's report, if it has none."""
    session = get_object_or_404(Session, pk=pk)
    _create(request, run=None, session=session)
    return redirect("session_report", session.pk)


@require_POST
def unshare_session(request: HttpRequest, pk: int) -> HttpResponse:
    session = get_object_or_404(Session, pk=pk)
    Share.objects.filter(session=session).delete()
    return redirect("session_report", session.pk)


@require_POST
def unshare(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    run = get_run(pk) if pk is not None else None
    Share.objects.filter(run=run, session=None).delete()
    return redirect(run) if run else redirect("status")
