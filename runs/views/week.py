"""The small charts of the first page, each as Vega-Lite and as a picture for pages without scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone

from runs.charts import week_charts
from runs.charts.theme import THEMES
from runs.models import Change, Gpu, Workload
from runs.queries import history, point_rows, week
from runs.queries.lines import Line, lines
from runs.views.pictures import as_file, palette_of

MOST_RESULTS = 400
"""Newest results of a kernel on a workload and card that are read for a trend."""


def _answer(request: HttpRequest, draw: Callable[[dict[str, str]], Any], kind: str, name: str) -> HttpResponse:
    """A chart, drawn in the palette that the address asks for."""
    palette = palette_of(request)
    return as_file(draw(THEMES[palette]).to_dict(validate=False), kind, palette, name)


def trend(request: HttpRequest, pk: int, kind: str) -> HttpResponse:
    """The runs around a change."""
    change = get_object_or_404(
        Change.objects.select_related("kernel", "workload", "gpu").defer("gpu__catalogue"), pk=pk
    )
    line, index = line_of(change)
    return _answer(request, lambda colours: week_charts.trend(line, change, index, colours), kind, f"change-{pk}")


def line_of(change: Change) -> tuple[Line, int]:
    """The line of a change, and the index of its run."""
    rows = point_rows.tried(change.kernel, key=change.workload.key)
    rows = rows.filter(measurement__mode=change.mode, measurement__run__gpu=change.gpu_id)
    points = point_rows.points(rows, MOST_RESULTS)
    for line in lines(history.grouped(points, gpus={change.gpu_id: change.gpu})):
        for index, point in enumerate(line.points):
            if point.run == change.run_id:
                return line, index
    raise Http404("its runs are not among the newest")


def record(request: HttpRequest, key: str, kind: str) -> HttpResponse:
    """The records of a workload on a GPU model, up to now."""
    workload = get_object_or_404(Workload, key=key)
    steps = week.steps(workload, request.GET.get("gpu", ""))
    if not steps:
        raise Http404("there is no record there")
    return _answer(request, lambda colours: week_charts.record(steps, timezone.now(), colours), kind, f"records-{key}")


def day(request: HttpRequest, pk: int, kind: str) -> HttpResponse:
    """When runs were on a device today."""
    gpu = get_object_or_404(Gpu.objects.only("pk"), pk=pk)
    now = timezone.now()
    known = week.days(now, gpu.pk).get(gpu.pk) or week.day(week.midnight(now), now, ())
    return _answer(request, lambda colours: week_charts.day(known, colours), kind, f"device-{pk}-today")
