"""Which parts of the site answer. No part is trusted to say so of another that it cannot see."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError, connection
from django.utils import timezone
from redis.exceptions import RedisError

from runs.broker import SILENT_AFTER_S, BrokerKeys
from runs.models import Gpu

UP, NO_ANSWER = "up", "down: it does not answer"
WORKERS = ("recorder", "worker", "beat")
SITE = ("web", "database", "broker", *WORKERS)
AGENTS = "agents"
GONE_AFTER = timedelta(days=7)
"""An agent that is silent for so long was taken away: it no longer makes the site unhealthy."""


def is_well(state: str) -> bool:
    return state.startswith(("up", "gone"))


def states(part: str = "", named: bool = False) -> dict[str, str] | None:
    """Part -> "up", "down: why", "unknown: why" or "gone: since when". None if there is no such part.

    part: one of SITE, "agents", or "agent-7" for device 7; empty: all. named: with the names of devices.
    """
    if part in ("", *SITE):
        found = _site(part)
        return found if part else found | _agents(found["database"], named)
    agents = _agents(_database(), named)
    if part == AGENTS:
        return agents
    return {part: agents[part]} if part in agents else None


def _site(part: str) -> dict[str, str]:
    """One part, or all of SITE."""
    asked = (part,) if part else SITE
    found = {"web": UP} if "web" in asked else {}
    if "database" in asked:
        found["database"] = _database()
    if workers := [one for one in asked if one in ("broker", *WORKERS)]:
        found |= _behind_the_broker(workers)
    return found


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM django_migrations LIMIT 1")
            return UP if cursor.fetchone() else "down: it has no tables"
    except DatabaseError:
        connection.close()
        return NO_ANSWER


def _behind_the_broker(parts: list[str]) -> dict[str, str]:
    keys = BrokerKeys(settings.REDIS_URL)
    try:
        keys.redis.ping()
        heard = {one: one == "broker" or keys.pulse_of(one) is not None for one in parts}
    except RedisError:
        return {one: NO_ANSWER if one == "broker" else "unknown: the broker does not answer" for one in parts}
    return {one: UP if heard[one] else f"down: not heard for {SILENT_AFTER_S[one]} s" for one in parts}


def _agents(database: str, named: bool) -> dict[str, str]:
    if database != UP:
        return {AGENTS: "unknown: the database does not answer"}
    gpus = Gpu.objects.in_order().only("uuid", "kind", "name", "host", "index", "seen_at")
    return {f"agent-{gpu.pk}": _agent(gpu) + (f" ({gpu})" if named else "") for gpu in gpus}


def _agent(gpu: Gpu) -> str:
    if gpu.is_online:
        return UP
    if gpu.is_unheard:
        return "down: the agent works, but the recorder does not store its events"
    if gpu.seen_at is None:
        return "gone: never heard"
    silent = timezone.now() - gpu.seen_at
    return f"gone: silent for {silent.days} days" if silent > GONE_AFTER else f"down: silent for {_length(silent)}"


def _length(time: timedelta) -> str:
    seconds = int(time.total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
