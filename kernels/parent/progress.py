"""Live progress of a run: at most a few times a second; may be lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kernels.parent.stopwatch import Stopwatch
from kernels.workload import Workload

EVERY_S = 0.3
LOG_BYTES = 8_000
IN_TURN = ("round", "warm-up")
"""Steps in which arms alternate many times a second: a change of arm is not reported."""


class Progress:
    """Reports the current workload, kernel and step."""

    def __init__(self, live: Callable[[dict[str, Any]], None], total: int, stopwatch: Stopwatch | None = None) -> None:
        self.live, self.total = live, total
        self.stopwatch = stopwatch or Stopwatch()
        self.position = 0
        """Index of the workload, from 0."""
        self.log: Callable[[], str] = lambda: ""
        self.telemetry: Callable[[], dict[str, Any]] = dict
        self._said: tuple[int, str, str] | None = None
        self._at = 0.0

    def step(self, workload: Workload, kernel: str, text: str) -> None:
        word, now = text.split(" ")[0], time.monotonic()
        self.stopwatch.step = text.rpartition(": ")[2].split(" ")[0]
        said = self.position, "" if word in IN_TURN else kernel, word
        if said != self._said or now - self._at >= EVERY_S:
            self._said, self._at = said, now
            self._tell(workload, kernel, text, self.telemetry())

    def waiting(self, workload: Workload, sentence: str) -> None:
        """Reports why nothing runs yet."""
        now = time.monotonic()
        if now - self._at >= EVERY_S:
            self._at = now
            self._tell(workload, "", sentence, {})

    def _tell(self, workload: Workload, kernel: str, text: str, telemetry: dict[str, Any]) -> None:
        state = {"position": self.position, "total": self.total, "workload": workload.label, "kernel": kernel}
        self.live(state | {"step": text, "log": self.log()[-LOG_BYTES:], "telemetry": telemetry})
