"""The list of runs with filters, .csv and .json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.paginator import Paginator
from django.db.models import Q, QuerySet, prefetch_related_objects
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from runs.models import Gpu, Run, Tag
from runs.queries.outcomes import COLUMNS, with_outcomes
from runs.views import number
from runs.views.downloads import csv_file

PER_PAGE = 50
MOST_ROWS = 10_000
MOST_TAGS = 300
LONGEST_SEARCH = 1000
"""Longest search text."""
FIELDS = (
    "id",
    "title",
    "state",
    "device",
    "config",
    "workloads",
    "measured",
    *COLUMNS,
    "contended",
    "faulty",
    "by",
    "tags",
    "created_at",
    "started_at",
    "finished_at",
    "url",
)


def chosen(request: HttpRequest) -> QuerySet[Run]:
    """Runs that match ?state=, ?device=, ?by=, ?tag= and ?q=. None for an unknown state, device or tag."""
    runs = Run.objects.for_list()
    asked = request.GET
    if asked.get("state"):
        runs = runs.filter(state=asked["state"].replace("\x00", ""))
    if asked.get("device"):
        device = number(asked["device"])
        runs = runs.filter(gpu=device) if device is not None else runs.none()
    if asked.get("by") == "me":
        runs = runs.filter(user=request.user.pk)
    if tag := asked.get("tag", "").replace("\x00", "").strip().lower():
        runs = runs.filter(tags__name=tag)
    if text := asked.get("q", "").replace("\x00", "").strip()[:LONGEST_SEARCH]:
        runs = runs.filter(Q(title__icontains=text) | Q(config_name__icontains=text) | Q(note__icontains=text))
    return runs


def runs(request: HttpRequest) -> HttpResponse:
    page = Paginator(chosen(request).prefetch_related("tags"), PER_PAGE).get_page(request.GET.get("page"))
    kept = request.GET.copy()
    kept.pop("page", None)
    context = {
        "page": "runs",
        "runs": with_outcomes(page.object_list),
        "tagged": True,
        "tags": Tag.objects.all()[:MOST_TAGS],
        "pages": page,
        "states": Run.State.values,
        "gpus": Gpu.objects.in_order(),
        "asked": request.GET,
        "kept": kept.urlencode(),
        "filtered": any(kept.values()),
    }
    return render(request, "runs.html", context)


def records(request: HttpRequest, runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Runs as rows of FIELDS, for files and for the API."""
    listed = list(runs)
    prefetch_related_objects(listed, "tags")
    return [
        {
            "id": run.pk,
            "title": run.title,
            "state": run.state,
            "device": run.gpu.name if run.gpu else run.device_name,
            "config": run.config_name,
            "workloads": run.total,
            "measured": run.done,
            **outcome.row(),
            "by": run.user.get_username() if run.user else "",
            "tags": " ".join(tag.name for tag in run.tags.all()),
            "created_at": run.created_at.isoformat(),
            "started_at": run.started_at.isoformat() if run.started_at else "",
            "finished_at": run.finished_at.isoformat() if run.finished_at else "",
            "url": request.build_absolute_uri(run.get_absolute_url()),
        }
        for run, outcome in with_outcomes(listed)
    ]


def runs_csv(request: HttpRequest) -> HttpResponse:
    return csv_file(records(request, chosen(request)[:MOST_ROWS]), FIELDS, "runs.csv")


def runs_json(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"runs": records(request, chosen(request)[:MOST_ROWS])})
