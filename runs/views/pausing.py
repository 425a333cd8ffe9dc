"""Pauses a device, and lets it go on."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from runs.access import person
from runs.models import Gpu


@require_POST
def pause(request: HttpRequest, pk: int) -> HttpResponse:
    gpu = get_object_or_404(Gpu.objects.defer("catalogue"), pk=pk)
    gpu.pause(person(request), request.POST.get("why", "").strip()[:200])
    messages.success(request, f"{gpu.name} is paused. A run in progress goes on; the next ones wait.")
    return redirect("gpu", pk)


@require_POST
def resume(request: HttpRequest, pk: int) -> HttpResponse:
    gpu = get_object_or_404(Gpu.objects.defer("catalogue"), pk=pk)
    gpu.resume()
    messages.success(request, f"{gpu.name} accepts runs again.")
    return redirect("gpu", pk)
