"""Each request is timed, for /metrics; what it logs says its number; what changes something is logged itself."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.multiprocess import MultiProcessCollector

from kernels.host.logs import about

log = logging.getLogger(__name__)
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Variable: the folder where the web processes keep their counts, so that each can answer for all."""
BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0)
OWN = CollectorRegistry()
REQUEST_S = Histogram(
    "benchsite_request_seconds", "Time to answer a request.", ("page", "status"), buckets=BUCKETS_S, registry=OWN
)


def requests() -> CollectorRegistry:
    """The durations of all web processes of this host."""
    if SHARED_FOLDER not in os.environ:
        return OWN
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return registry


class Observed:
    """Middleware, the outermost."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        begun = time.perf_counter()
        with about(request=secrets.token_hex(4)):
            response = self.get_response(request)
            took_s = time.perf_counter() - begun
            match = request.resolver_match
            page = (match.url_name if match else None) or "other"  # names of ours only: addresses would be endless
            REQUEST_S.labels(page, f"{response.status_code // 100}xx").observe(took_s)
            if request.method not in ("GET", "HEAD", "OPTIONS"):
                fields = {"status": response.status_code, "took_s": round(took_s, 3)}
                log.info("%s %s", request.method, request.path, extra=fields)
        return response
