"""For machines that watch the site: /healthz says what is down, /metrics is for Prometheus. Neither needs an account."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from runs.access import may_watch
from runs.observing import requests
from runs.queries import health
from runs.queries.gauges import Site


@login_not_required
@never_cache
@require_safe
def healthz(request: HttpRequest, part: str = "") -> HttpResponse:
    """{"status", "parts"}: 200 if every part asked for is well, else 503. Names of devices only for who may watch."""
    parts = health.states(part, named=may_watch(request))
    if parts is None:
        raise Http404
    well = all(map(health.is_well, parts.values()))
    answer = {"status": "up" if well else "down", "parts": parts}
    return JsonResponse(answer, status=200 if well else 503, json_dumps_params={"indent": 1})


@login_not_required
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    if not may_watch(request):
        return HttpResponse("Send METRICS_TOKEN: Authorization: Bearer ...\n", status=403, content_type="text/plain")
    site = CollectorRegistry()
    site.register(Site())
    body = generate_latest(site) + generate_latest(requests())
    return HttpResponse(body, content_type=CONTENT_TYPE_PLAIN_0_0_4)
