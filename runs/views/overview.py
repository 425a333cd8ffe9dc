"""The first page: devices and the latest runs."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from runs.models import Gpu, Run
from runs.queries.outcomes import with_outcomes
from runs.views.gpus import headline

RECENT = 12


def at_work(gpus: list[Gpu]) -> list[Gpu]:
    """Adds each device's current run, or None."""
    running = {run.gpu_id: run for run in Run.objects.sent().select_related("gpu").defer("config", "log")}
    for gpu in gpus:
        gpu.run = running.get(gpu.pk)  # type: ignore[attr-defined]
        gpu.at_work = int(gpu.pk in running)  # type: ignore[attr-defined]
    return gpus


def overview(request: HttpRequest) -> HttpResponse:
    gpus = at_work(list(Gpu.objects.in_order()))
    context = {
        "page": "overview",
        "gpus": gpus,
        "runs": with_outcomes(Run.objects.for_list()[:RECENT]),
        "waiting": Run.objects.waiting().count(),
        "headline": headline(gpus),
    }
    if request.htmx:  # type: ignore[attr-defined]
        return render(request, "_overview.html", context)
    return render(request, "overview.html", context)
