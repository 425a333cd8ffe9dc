"""The status page, for sharing: devices, the newest run of each config, tiers reached."""

from __future__ import annotations

from typing import Any

from django.db.models import Max
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from runs.forms import TYPED
from runs.models import Gpu, Run, Share, TierScale
from runs.queries import history
from runs.queries.ladder import ladders
from runs.queries.outcomes import with_outcomes
from runs.views.gpus import headline
from runs.views.overview import at_work
from runs.views.run import link_by
from runs.views.tiers import Standing

MOST_RUNS = 24
"""Number of newest runs listed."""


def newest_runs() -> list[Any]:
    """The newest finished run of each config on each device, with its outcome."""
    done = Run.objects.filter(state=Run.State.DONE, done__gt=0).exclude(config_name__in=("", TYPED))
    newest = done.values("config_name", "gpu", "demo").annotate(newest=Max("pk")).order_by("-newest")[:MOST_RUNS]
    return with_outcomes(Run.objects.for_list().filter(pk__in=[one["newest"] for one in newest]))


def standings() -> list[dict[str, Any]]:
    """Per device name: the standing of its kernels on the first scale."""
    scale = TierScale.objects.current().first()
    if scale is None:
        return []
    places = history.devices()
    return [
        {"device": device} | Standing(scale, [], device, [], there).headline()
        for device, environments in places.items()
        if (there := ladders(environments, scale))
    ]


def status(request: HttpRequest) -> HttpResponse:
    gpus = at_work(list(Gpu.objects.in_order()))
    context = {
        "page": "status",
        "gpus": gpus,
        "headline": headline(gpus),
        "runs": newest_runs(),
        "standings": standings(),
        "link": link_by(request, Share.objects.filter(run=None).first()),
    }
    return render(request, "_status.html" if request.htmx else "status.html", context)  # type: ignore[attr-defined]
