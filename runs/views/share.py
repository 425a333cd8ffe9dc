"""Creates and ends secret links, and lists those that are live with their use."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from runs.models import Session, Share
from runs.views.run import get_run

PER_PAGE = 100


@require_POST
def share(request: HttpRequest, pk: int) -> HttpResponse:
    """Creates the link of a run, if it has none."""
    run = get_run(pk)
    Share.objects.all().make(request.user, run=run)
    return redirect(run)


@require_POST
def unshare(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_run(pk)
    Share.objects.filter(run=run).end(request.user)
    return redirect(run)


@require_POST
def share_session(request: HttpRequest, pk: int) -> HttpResponse:
    """Creates the link of a session's report, if it has none."""
    session = get_object_or_404(Session, pk=pk)
    Share.objects.all().make(request.user, session=session)
    return redirect("session_report", session.pk)


@require_POST
def unshare_session(request: HttpRequest, pk: int) -> HttpResponse:
    session = get_object_or_404(Session, pk=pk)
    Share.objects.filter(session=session).end(request.user)
    return redirect("session_report", session.pk)


@never_cache
def links(request: HttpRequest) -> HttpResponse:
    """All live links with their use, newest first."""
    live = Share.objects.live().select_related("page", "user").order_by("-pk")
    pages = Paginator(live, PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "links.html", {"page": "status", "pages": pages})


@require_POST
def end_link(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Share.objects.select_related("page"), pk=pk)
    if Share.objects.filter(pk=found.pk).end(request.user):
        messages.info(request, f"The link to {found.what} has ended. Its address now shows that.")
    return redirect("links")
