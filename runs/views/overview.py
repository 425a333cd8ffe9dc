"""The first page: what the devices are doing, what ran last."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from runs.models import Gpu, Run

RECENT = 12


def overview(request: HttpRequest) -> HttpResponse:
    running = {run.gpu_id: run for run in Run.objects.sent().select_related("gpu").defer("config", "log")}
    gpus = list(Gpu.objects.in_order())
    for gpu in gpus:
        gpu.run = running.get(gpu.pk)  # type: ignore[attr-defined]
    context = {
        "page": "overview",
        "gpus": gpus,
        "runs": Run.objects.for_list()[:RECENT],
        "waiting": Run.objects.waiting().count(),
        "headline": _headline(gpus, len(running)),
    }
    if request.htmx:  # type: ignore[attr-defined]
        return render(request, "_overview.html", context)
    return render(request, "overview.html", context)


def _headline(gpus: list[Gpu], running: int) -> str:
    """The answer of this page in a sentence."""
    offline = [gpu for gpu in gpus if not gpu.is_online]
    if not gpus:
        return "No device has reported yet"
    devices = f"{len(gpus)} device{'s' * (len(gpus) != 1)}"
    parts = [f"{running} running" if running else "all idle" if not offline else "nothing is running"]
    if offline:
        parts.append(f"{len(offline)} silent")
    return f"{devices}, {', '.join(parts)}"
