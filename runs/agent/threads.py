"""Heartbeat, journal delivery, cancellation: three threads that retry forever."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import sqlite3
import threading
import time
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable
from functools import cached_property
from itertools import accumulate
from typing import Any

from celery import Celery

from kernels.catalog import declared
from kernels.contract.events import SentLine
from kernels.contract.fitting import MAX_EVENT_BYTES
from kernels.host.airlock import Facts
from kernels.host.containment import is_trusting, probe, why_refused
from kernels.host.device import Device
from kernels.host.telemetry import foreign_processes
from kernels.profiling.ncu import why_none
from runs.agent.current import Current
from runs.agent.journal import Journal
from runs.broker import BrokerKeys

log = logging.getLogger(__name__)
HELLO_EVERY_S, LISTEN_EVERY_S, SEND_EVERY_S = 5.0, 1.0, 0.1
AFTER_A_FAILURE_S = 2.0
"""Else a thread that cannot write to the journal would keep hello from reading it."""
RESEND_FIRST_S, RESEND_MOST_S = 10.0, 60.0
MOST_FLYING = 4
"""Messages of an attempt that are sent before one of them is confirmed."""
HELD_S, FULL = 0.5, 25
"""Fewer lines than that wait so long for more, while a message before them is not confirmed."""
HANGS_AFTER_S = 300.0
"""The pool process looks for a reason to stop several times a second while it measures."""


class AgentThreads:
    """Sends hellos, delivers the journal and listens, each in its own thread."""

    def __init__(self, app: Celery, broker: str, device: Device, journal: Journal, current: Current) -> None:
        self.app, self.device, self.journal, self.current = app, device, journal, current
        self.keys = BrokerKeys(broker)
        self.stopping = threading.Event()
        self.sender = Sender(self._publish, journal)
        self.last_lines: dict[tuple[int, int], int] = {}
        self.confirmed: dict[tuple[int, int], int] = {}
        """What the site has stored, of attempts whose lines the journal still has."""

    def start(self) -> None:
        for every, step in ((HELLO_EVERY_S, self.hello), (LISTEN_EVERY_S, self.listen), (SEND_EVERY_S, self.tell)):
            threading.Thread(target=self._loop, args=(every, step), daemon=True, name=step.__name__).start()

    def stop(self) -> None:
        self.stopping.set()

    def _loop(self, every: float, step: Callable[[], None]) -> None:
        failed = False
        while True:
            try:
                step()
                failed = False
            except sqlite3.OperationalError as error:
                if not failed:
                    log.warning("%s: the journal: %s; trying again", step.__name__, error)
                failed = True
            except sqlite3.DatabaseError as error:
                start_again(f"the journal is damaged: {error}")
            except Exception as error:
                if not failed:
                    log.warning("%s: %s; trying again", step.__name__, error)
                failed = True
            if self.stopping.wait(max(every, AFTER_A_FAILURE_S) if failed else every):
                return

    def _publish(self, task: str, *arguments: Any, **options: Any) -> None:
        self.app.send_task(task, args=arguments, retry=False, **options)

    def hello(self) -> None:
        """Sends device, catalogue and held attempts. They are read before sending, so the hello may be old, never too
        new."""
        if self.current.silent_s > HANGS_AFTER_S:
            start_again(f"the pool process has not answered for {HANGS_AFTER_S:g} s")
        self.keys.pulse(f"agent:{self.device.uuid}")
        said = {
            "device": self.device.as_json(),
            "host": platform.node(),
            "catalogue": declared(self.device.kind, self.device.capability),
            "held": self.held(),
            "no_submissions": why_refused(self.sandbox),
            "sandbox": self.sandbox.model_dump(exclude={"pid"}) | {"trusted": is_trusting()},
            "no_counters": self.no_counters,
            "foreign": None if self.current.attempt else foreign_processes(self.device),
            "at": time.time(),
            "sent": self.keys.now(),
        }
        self._publish("hello", said)

    @cached_property
    def sandbox(self) -> Facts:
        """What this host takes from a submitted kernel. Tried once."""
        return probe()

    @cached_property
    def no_counters(self) -> str:
        """Why a profile on this host has no hardware counters; empty if it has."""
        return why_none(self.device.kind)

    def held(self) -> list[tuple[int, int]]:
        """The attempt that is executed, and those with lines that the site has not confirmed."""
        current = self.current.attempt
        with contextlib.suppress(sqlite3.OperationalError):  # else what it knew last
            self.last_lines = self.journal.last_lines()
        untold = [key for key, last in self.last_lines.items() if last > self.confirmed.get(key, 0)]
        return untold if current is None or current in untold else [current, *untold]

    def listen(self) -> None:
        """Receives cancels, superseded attempts, and confirmations."""
        if (current := self.current.attempt) and self.keys.cancel_asked(*current):
            self.current.stop(*current, "cancelled")
        answer = self.keys.replied(self.device.uuid)
        for run, attempt in answer.get("superseded", []):
            self.current.stop(run, attempt, "superseded")
            if (run, attempt) != self.current.attempt:
                self.journal.drop(run, attempt)
        for run, attempt, seq in answer.get("confirmed", []):
            self._confirm(run, attempt, seq)

    def tell(self) -> None:
        waiting = self.journal.last_lines()
        self.confirmed = {key: seq for key, seq in self.confirmed.items() if key in waiting}
        for run, attempt in waiting:
            if seq := self.keys.confirmed(run, attempt):
                self._confirm(run, attempt, seq)
        self.sender.step()

    def _confirm(self, run: int, attempt: int, seq: int) -> None:
        self.confirmed[run, attempt] = max(seq, self.confirmed.get((run, attempt), 0))
        self.journal.confirm(run, attempt, seq)


def start_again(why: str) -> None:
    """Ends this agent at once; what started it starts it again."""
    log.error("this agent ends, to start again: %s", why)
    os._exit(4)


class Sender:
    """Sends lines in order; resends from the first unconfirmed one after 10 s, then 20, 40, 60.

    Of an attempt at most MOST_FLYING messages are unconfirmed, and few lines wait for more while one is: they come together from
    a busy site's agents, and it stores lines of one message faster than those of many.
    """

    def __init__(
        self, publish: Callable[..., None], journal: Journal, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.publish, self.journal, self.now = publish, journal, now
        self.sent: dict[tuple[int, int], int] = {}
        self.oldest: dict[tuple[int, int], tuple[int, float, float]] = {}
        """(first unconfirmed, time sent, time to wait)"""
        self.flying: defaultdict[tuple[int, int], deque[int]] = defaultdict(deque)
        """Number of the last line of each message that is not confirmed."""
        self.sent_at: dict[tuple[int, int], float] = {}
        """When the last message was sent."""

    def step(self) -> None:
        waiting = self.journal.last_lines()
        for gone in [key for key in self.sent if key not in waiting]:
            for kept in (self.sent, self.oldest, self.flying, self.sent_at):
                kept.pop(gone, None)
        for key in waiting:
            self._send(key)

    def _send(self, key: tuple[int, int]) -> None:
        first = self.journal.lines(*key, after=0, most=1)
        if not first:
            return
        flying = self.flying[key]
        while flying and flying[0] < first[0].seq:
            flying.popleft()
        seq, when, wait = self.oldest.get(key, (0, self.now(), RESEND_FIRST_S))
        if first[0].seq != seq:
            self.oldest[key] = (first[0].seq, self.now(), RESEND_FIRST_S)
        elif self.now() - when > wait:
            self.oldest[key] = (seq, self.now(), min(RESEND_MOST_S, 2 * wait))
            self.sent[key] = 0
            flying.clear()
        while len(flying) < MOST_FLYING:
            lines = self.journal.lines(*key, after=self.sent.get(key, 0))
            if not lines or (flying and self._are_held(key, lines)):
                return
            lines = _few(lines)
            self.publish("record", lines)
            self.sent[key], self.sent_at[key] = lines[-1].seq, self.now()
            flying.append(lines[-1].seq)

    def _are_held(self, key: tuple[int, int], lines: list[SentLine]) -> bool:
        is_full = len(lines) >= FULL or len(_few(lines)) < len(lines)
        return not is_full and self.now() - self.sent_at[key] < HELD_S


def _few(lines: list[SentLine]) -> list[SentLine]:
    """The first lines that together are no longer than the longest one may be; at least one."""
    sizes = list(accumulate(len(line.body) for line in lines))
    return lines[: max(1, bisect_right(sizes, MAX_EVENT_BYTES))]
