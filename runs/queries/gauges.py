"""What /metrics says of the site, read when it is asked. All may be asked of any web process: nothing is kept there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from django.conf import settings
from django.db.models import Count
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from benchsite.queues import RECORD_QUEUE, SITE_QUEUE
from runs.broker import EVENTS, BrokerKeys
from runs.models import Gpu, Run
from runs.queries import health


class Site(Collector):
    """One scrape. What cannot be read is left out; `benchsite_up` says what was down."""

    def collect(self) -> Iterator[Metric]:
        parts = health.states() or {}
        up = GaugeMetricFamily("benchsite_up", "1 if the part answers, else 0; agents by device.", labels=["part"])
        for part, state in parts.items():
            if not state.startswith("gone"):
                up.add_metric([part], float(health.is_well(state)))
        yield up
        if parts["database"] == health.UP:
            yield from self._rows()
        if parts["broker"] == health.UP:
            with suppress(RedisError):
                yield from self._broker()

    def _rows(self) -> Iterator[Metric]:
        runs = GaugeMetricFamily("benchsite_runs", "Runs by state.", labels=["state"])
        counted = dict(Run.objects.order_by().values_list("state").annotate(Count("pk")))
        for state in Run.State.values:
            runs.add_metric([state], counted.get(state, 0))
        yield runs
        queue = GaugeMetricFamily("benchsite_queue_depth", "Runs that wait for a device.", labels=["device"])
        waiting = Run.objects.waiting().order_by().values_list("gpu__uuid", "device_name").annotate(Count("pk"))
        depths = dict.fromkeys(Gpu.objects.values_list("uuid", flat=True), 0.0)
        for uuid, any_of, count in waiting:
            device = uuid or f"any {any_of}"
            depths[device] = depths.get(device, 0.0) + count
        for device, count in depths.items():
            queue.add_metric([device], count)
        yield queue
        labels = ["device", "name", "host"]
        age = GaugeMetricFamily("benchsite_device_seen_age_seconds", "Time since its agent's hello.", labels=labels)
        now = timezone.now()
        for gpu in Gpu.objects.only("uuid", "name", "host", "seen_at"):
            if gpu.seen_at:
                age.add_metric([gpu.uuid, gpu.name, gpu.host], max(0.0, (now - gpu.seen_at).total_seconds()))
        yield age

    def _broker(self) -> Iterator[Metric]:
        keys = BrokerKeys(settings.REDIS_URL)
        queues = GaugeMetricFamily(
            "benchsite_broker_queue_depth", "Messages that wait in the broker.", labels=["queue"]
        )
        for queue in (RECORD_QUEUE, SITE_QUEUE):
            queues.add_metric([queue], keys.queue_length(queue))
        yield queues
        counts = keys.counts()
        for name, what in EVENTS.items():
            yield CounterMetricFamily(f"benchsite_events_{name}", what, value=counts[name])
