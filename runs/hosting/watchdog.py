"""The watchdog: starts again what runs but does not answer. It runs beside the keeper, in a thread.

It sends a task to each worker's queue and looks for what tasks leave in the broker; it asks the web server for a
page, the broker for an answer, and the broker when an agent's hello was last sent. No Django.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from benchsite.queues import RECORD_QUEUE, SITE_QUEUE, make_app
from kernels.host.device import Device
from runs.broker import SILENT_AFTER_S, BrokerKeys
from runs.hosting.addresses import page_answers
from runs.hosting.keeper import Keeper
from runs.hosting.stack import agent_name

LOOK_EVERY_S, ASK_EVERY_S = 5.0, 10.0
HANGS_AFTER_S = {"broker": 30.0, "web": 120.0, **SILENT_AFTER_S}
"""Pages may be slow."""
AGENT_HANGS_AFTER_S = 60.0
QUEUES = {"recorder": RECORD_QUEUE, "worker": SITE_QUEUE}


@dataclass
class Watched:
    """When a part last gave a sign of life, by this process's own clock."""

    limit_s: float
    sign: object = None
    since: float = field(default_factory=time.monotonic)


class Watchdog:
    """site: this host's keeper has the site's parts, beside agents."""

    def __init__(self, broker: str, devices: Sequence[Device], web: tuple[str, int] | None, site: bool = True) -> None:
        self.keys, self.app, self.web, self.site = BrokerKeys(broker), make_app("watchdog", broker), web, site
        self.pulses = {agent_name(device): f"agent:{device.uuid}" for device in devices}
        limits = dict.fromkeys(self.pulses, AGENT_HANGS_AFTER_S)
        if site:
            self.pulses |= {name: name for name in ("recorder", "worker", "beat")}
            limits |= HANGS_AFTER_S
        self.watched = {name: Watched(limit_s) for name, limit_s in limits.items()}
        self._asked = self._looked = time.monotonic()

    def watch(self, keeper: Keeper) -> None:
        """Looks for ever."""
        while True:
            time.sleep(LOOK_EVERY_S)
            for name, why in self.look():
                if name in keeper.parts:
                    keeper.restart(name, why)

    def look(self) -> list[tuple[str, str]]:
        """(part, why) of what hangs."""
        if time.monotonic() - self._looked > 4 * LOOK_EVERY_S:
            self._all_well()  # this process was stopped, or the host slept: nobody was asked
        try:
            self._ask()
            signs = {name: self.keys.pulse_of(pulse) for name, pulse in self.pulses.items()}
        except RedisError:  # nothing can be heard of the others
            self._all_well(but=("broker", "web"))
        else:
            self._sign("broker", object())
            for name, sign in signs.items():
                self._sign(name, sign)
        if self.web and page_answers(*self.web):
            self._sign("web", object())
        self._looked = time.monotonic()
        return [found for name in self.watched if (found := self._verdict(name))]

    def _verdict(self, name: str) -> tuple[str, str] | None:
        one, now = self.watched[name], time.monotonic()
        if (silent_s := now - one.since) < one.limit_s or (name == "web" and not self.web):
            return None
        if name == "beat" and self.watched["worker"].since < now - 2 * ASK_EVERY_S:
            return None  # what beat sends is heard through the worker
        one.since = now
        return name, f"it has not answered for {silent_s:.0f} s"

    def _sign(self, name: str, sign: object) -> None:
        one = self.watched.get(name)
        if one and sign is not None and sign != one.sign:
            one.sign, one.since = sign, time.monotonic()

    def _all_well(self, but: Sequence[str] = ()) -> None:
        for name, one in self.watched.items():
            if name not in but:
                one.since = time.monotonic()

    def _ask(self) -> None:
        """Raises RedisError if the broker does not answer."""
        self.keys.redis.ping()
        if self.site and time.monotonic() - self._asked >= ASK_EVERY_S:
            self._asked = time.monotonic()
            for name, queue in QUEUES.items():
                try:
                    self.app.send_task("pulse", args=[name], queue=queue, expires=3 * ASK_EVERY_S, retry=False)
                except Exception as error:  # kombu raises its transport's errors
                    raise RedisError(str(error)) from None
