"""The audit log, for admins."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache

from runs.models import Audit
from runs.views import number

PER_PAGE = 100


@never_cache
def audit(request: HttpRequest) -> HttpResponse:
    """Newest first; ?kind= and ?who= narrow it, ?before= is the row after which it goes on."""
    kind, who = request.GET.get("kind", ""), request.GET.get("who", "").strip().replace("\x00", "")[:150]
    before = number(request.GET.get("before", ""))
    rows = Audit.objects.all()
    if kind in Audit.Kind.values:
        rows = rows.filter(kind=kind)
    if who:
        rows = rows.filter(name=who)
    if before:
        rows = rows.filter(pk__lt=before)
    some = list(rows[: PER_PAGE + 1])
    context = {
        "rows": some[:PER_PAGE],
        "older": some[PER_PAGE - 1].pk if len(some) > PER_PAGE else None,
        "kinds": Audit.Kind.choices,
        "kind": kind,
        "who": who,
    }
    return render(request, "audit.html", context)
