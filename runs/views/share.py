"""Creates and ends secret links to a run or to the status page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from runs.models import Share
from runs.views.run import get_run


@require_POST
def share(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """Creates the link of a run, or of the status page, if it has none."""
    run = get_run(pk) if pk is not None else None
    if not Share.objects.filter(run=run).exists():
        by = request.user if request.user.is_authenticated else None
        Share.objects.get_or_create(run=run, defaults={"user": by})
    return redirect(run) if run else redirect("status")


@require_POST
def unshare(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    run = get_run(pk) if pk is not None else None
    Share.objects.filter(run=run).delete()
    return redirect(run) if run else redirect("status")
