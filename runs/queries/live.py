"""A running run: live progress and remaining time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone
from redis.exceptions import RedisError

from runs.broker import BrokerKeys
from runs.models import Run
from runs.queries.estimates import estimate


def shown_of(run: Run) -> dict[str, Any]:
    """What the agent shows of a run; empty if the broker has nothing."""
    if not run.is_active:
        return {}
    try:
        return BrokerKeys(settings.REDIS_URL).shown(run.pk)
    except (RedisError, ValueError):
        return {}


def live_progress(run: Run) -> dict[str, Any]:
    """The agent's live progress, with the remaining time; empty if the broker has none."""
    if state := shown_of(run):
        state["number"] = min(state["position"] + 1, state["total"])
        left = state["remaining_s"] = remaining(run)
        state["ends_at"] = timezone.now() + timedelta(seconds=left) if left else None
    return state


def doing(run: Run) -> str:
    """What its device does now, in words; without a query."""
    if not run.is_active:
        return ""
    try:
        state = BrokerKeys(settings.REDIS_URL).shown(run.pk) or {}
    except (RedisError, ValueError):
        return ""
    return " ".join(str(state[name]) for name in ("workload", "kernel", "step") if state.get(name))


def remaining(run: Run) -> float | None:
    """Seconds left, from workloads measured so far, or from earlier runs. None once the estimate has run out."""
    if run.elapsed_s is None or run.started_at is None:
        return None
    if run.plan:
        whole = 60 * run.plan.minutes if run.plan.minutes else 0.0
    elif last := run.measurements.order_by("created_at").last():
        whole = (last.created_at - run.started_at).total_seconds() / max(1, run.done) * run.total
    else:
        whole = estimate(run.spec, run.gpu).seconds
    left = whole - run.elapsed_s
    return left if left > 0 else None
