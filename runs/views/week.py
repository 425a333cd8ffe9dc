"""The small charts of the first page, each as Vega-Lite and as a picture for pages without scripts."""

from __future__ import annotations

from typing import Any

import vl_convert
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone

from runs.charts import week_charts
from runs.charts.theme import THEMES
from runs.models import Change, Gpu, Workload
from runs.queries import history, point_rows, week
from runs.queries.lines import Line, lines

MOST_RESULTS = 400
"""Newest results of a kernel on a workload and card that are read for a trend."""


def _colours(request: HttpRequest) -> dict[str, str]:
    theme = request.GET.get("theme", "light")
    if theme not in THEMES:
        raise Http404(f"there is no chart in '{theme}'")
    return THEMES[theme]


def _answer(chart: Any, kind: str) -> HttpResponse:
    spec = chart.to_dict(validate=False)
    if kind == "json":
        return JsonResponse(spec)
    return HttpResponse(vl_convert.vegalite_to_svg(spec), content_type="image/svg+xml")


def trend(request: HttpRequest, pk: int, kind: str) -> HttpResponse:
    """The runs around a change."""
    colours = _colours(request)
    change = get_object_or_404(
        Change.objects.select_related("kernel", "workload", "gpu").defer("gpu__catalogue"), pk=pk
    )
    line, index = line_of(change)
    return _answer(week_charts.trend(line, change, index, colours), kind)


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
    colours = _colours(request)
    workload = get_object_or_404(Workload, key=key)
    steps = week.steps(workload, request.GET.get("gpu", ""))
    if not steps:
        raise Http404("there is no record there")
    return _answer(week_charts.record(steps, timezone.now(), colours), kind)


def day(request: HttpRequest, pk: int, kind: str) -> HttpResponse:
    """When runs were on a device today."""
    colours = _colours(request)
    gpu = get_object_or_404(Gpu.objects.only("pk"), pk=pk)
    now = timezone.now()
    known = week.days(now, gpu.pk).get(gpu.pk) or week.day(week.midnight(now), now, ())
    return _answer(week_charts.day(known, colours), kind)
