"""Heartbeat, journal delivery, cancellation: three threads that retry forever."""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Callable
from typing import Any

from celery import Celery

from kernels.catalog import declared
from kernels.host.device import Device
from runs.agent.journal import Journal
from runs.broker import BrokerKeys

log = logging.getLogger(__name__)
HELLO_EVERY_S, LISTEN_EVERY_S, SEND_EVERY_S = 5.0, 1.0, 0.1
RESEND_FIRST_S, RESEND_MOST_S = 10.0, 60.0


class AgentThreads:
    """Sends hellos, delivers the journal and listens, each in its own thread."""

    def __init__(self, app: Celery, broker: str, device: Device, journal: Journal) -> None:
        self.app, self.device, self.journal = app, device, journal
        self.keys = BrokerKeys(broker)
        self.stopping = threading.Event()
        self.sender = Sender(self._publish, journal)

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
            except Exception as error:
                if not failed:
                    log.warning("%s: %s; trying again", step.__name__, error)
                failed = True
            if self.stopping.wait(every):
                return

    def _publish(self, task: str, *arguments: Any, **options: Any) -> None:
        self.app.send_task(task, args=arguments, retry=False, **options)

    def hello(self) -> None:
        """Sends device, catalogue and active attempts. They are read before sending, so the hello may be old, never too
        new."""
        said = {
            "device": self.device.as_json(),
            "host": platform.node(),
            "catalogue": declared(self.device.kind, self.device.capability),
            "held": self.journal.active_attempts(),
        }
        self._publish("hello", said, expires=15)

    def listen(self) -> None:
        """Receives cancels, superseded attempts, and confirmations."""
        for run, attempt in self.journal.running():
            if self.keys.cancel_asked(run, attempt):
                self.journal.stop(run, attempt, "cancelled")
        answer = self.keys.replied(self.device.uuid)
        for run, attempt in answer.get("superseded", []):
            self.journal.stop(run, attempt, "superseded")
            if (run, attempt) not in self.journal.running():
                self.journal.drop(run, attempt)
        for run, attempt, seq in answer.get("confirmed", []):
            self.journal.confirm(run, attempt, seq)

    def tell(self) -> None:
        for run, attempt in self.journal.to_tell():
            if seq := self.keys.confirmed(run, attempt):
                self.journal.confirm(run, attempt, seq)
        self.sender.step()


class Sender:
    """Sends lines in order; resends from the first unconfirmed one after 10 s, then 20, 40, 60."""

    def __init__(
        self, publish: Callable[..., None], journal: Journal, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.publish, self.journal, self.now = publish, journal, now
        self.sent: dict[tuple[int, int], int] = {}
        self.oldest: dict[tuple[int, int], tuple[int, float, float]] = {}
        """(first unconfirmed, time sent, time to wait)"""

    def step(self) -> None:
        waiting = self.journal.to_tell()
        for gone in [key for key in self.sent if key not in waiting]:
            self.sent.pop(gone), self.oldest.pop(gone, None)
        for key in waiting:
            self._send(key)

    def _send(self, key: tuple[int, int]) -> None:
        first = self.journal.lines(*key, after=0, most=1)
        if not first:
            return
        seq, when, wait = self.oldest.get(key, (0, self.now(), RESEND_FIRST_S))
        if first[0].seq != seq:
            self.oldest[key] = (first[0].seq, self.now(), RESEND_FIRST_S)
        elif self.now() - when > wait:
            self.oldest[key] = (seq, self.now(), min(RESEND_MOST_S, 2 * wait))
            self.sent[key] = 0
        while lines := self.journal.lines(*key, after=self.sent.get(key, 0)):
            self.publish("record", lines)
            self.sent[key] = lines[-1].seq
