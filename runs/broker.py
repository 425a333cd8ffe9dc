"""Broker keys shared by site and agents. All may be lost. No Django."""

from __future__ import annotations

import json
import time
from functools import cache
from typing import Any

import redis

PREFIX = "benchsite:"
DAY_S = 24 * 3600
LIVE_S = 3600
PULSE_S = 15
"""Three missed hellos."""
SILENT_AFTER_S = {"recorder": 60, "worker": 120, "beat": 180}
"""A part of the site that shows no life for so long hangs: longer than the longest task of one that is well. The worker
draws charts; beat is heard through the worker."""
EVENTS = {"recorded": "Events of agents that were stored.", "rejected": "Events of agents that could not be stored."}


@cache
def client(url: str) -> redis.Redis:
    """A client with a 1 s timeout: its data is optional."""
    return redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1, decode_responses=True)


class BrokerKeys:
    """The keys, by content."""

    def __init__(self, url: str) -> None:
        self.redis = client(url)

    # recorder -> agent: all events of this attempt up to seq are stored
    def confirm(self, run: int, attempt: int, seq: int) -> None:
        self.redis.set(f"{PREFIX}confirmed:{run}:{attempt}", seq, ex=2 * DAY_S)

    def confirmed(self, run: int, attempt: int) -> int:
        return int(self.redis.get(f"{PREFIX}confirmed:{run}:{attempt}") or 0)

    # site -> agent: stop this run
    def ask_cancel(self, run: int, attempt: int) -> None:
        self.redis.set(f"{PREFIX}cancel:{run}:{attempt}", 1, ex=DAY_S)

    def cancel_asked(self, run: int, attempt: int) -> bool:
        return bool(self.redis.exists(f"{PREFIX}cancel:{run}:{attempt}"))

    # recorder -> agent: the answer to its hello
    def reply(self, uuid: str, answer: dict[str, Any]) -> None:
        self.redis.set(f"{PREFIX}reply:{uuid}", json.dumps(answer), ex=60)

    def replied(self, uuid: str) -> dict[str, Any]:
        return json.loads(self.redis.get(f"{PREFIX}reply:{uuid}") or "{}")

    # agent -> page: live progress
    def show(self, run: int, state: dict[str, Any]) -> None:
        self.redis.set(f"{PREFIX}live:{run}", json.dumps(state), ex=LIVE_S)

    def shown(self, run: int) -> dict[str, Any]:
        return json.loads(self.redis.get(f"{PREFIX}live:{run}") or "{}")

    # a part of the site, or an agent -> watchdog, page, health: it works
    def pulse(self, name: str) -> None:
        self.redis.set(f"{PREFIX}pulse:{name}", time.time(), ex=SILENT_AFTER_S.get(name, PULSE_S))

    def pulse_of(self, name: str) -> str | None:
        """Changes with each pulse; None after SILENT_AFTER_S without one, of an agent after PULSE_S."""
        found = self.redis.get(f"{PREFIX}pulse:{name}")
        return None if found is None else str(found)

    # recorder -> metrics: how many events it has stored or rejected; begins at 0 in a new broker
    def count(self, name: str, more: int) -> None:
        self.redis.incrby(f"{PREFIX}events:{name}", more)

    def counts(self) -> dict[str, int]:
        return {name: int(self.redis.get(f"{PREFIX}events:{name}") or 0) for name in EVENTS}

    def now(self) -> float:
        """The broker's clock, in s: the one that site and agents share."""
        seconds, microseconds = self.redis.time()
        return seconds + microseconds / 1e6

    def queue_length(self, queue: str) -> int:
        return int(self.redis.llen(queue))
