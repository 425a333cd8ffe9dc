"""Repeats a run daily, and ends that."""

from __future__ import annotations

from datetime import date

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.views.decorators.http import require_POST

from runs.models import Run, Schedule
from runs.models.schedule import LONGEST


@require_POST
def repeat(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_object_or_404(Run.objects.select_related("gpu"), pk=pk, demo="")
    until, today = _date(request.POST.get("until", "")), timezone.localdate()
    if until is None or not today < until <= today + LONGEST:
        messages.error(request, f"Until when? A date from tomorrow to {today + LONGEST}.")
    else:
        Schedule.begin(run, request.user, until)  # type: ignore[arg-type]
        messages.success(request, f"It repeats daily until {until}, from tomorrow on.")
    return redirect(run)


@require_POST
def end(request: HttpRequest, pk: int) -> HttpResponse:
    schedule = get_object_or_404(Schedule.objects.select_related("run"), pk=pk)
    schedule.end()
    messages.success(request, "It no longer repeats. Runs that have started go on.")
    return redirect(schedule.run)


def _date(text: str) -> date | None:
    try:
        return parse_date(text[:20])
    except ValueError:
        return None
