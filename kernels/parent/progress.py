"""Live progress of a run: at most a few times a second; may be lost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from kernels.parent.stopwatch import Stopwatch
from kernels.workload import Workload

EVERY_S = 0.3
LOG_BYTES = 8_000
MOST_ROUNDS = 120
"""Rounds whose ratios are shown while a workload is measured: the newest."""
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
        self._ratios: dict[str, list[float]] = {}
        """Kernel -> baseline time over its own, in each round of this workload."""
        self._rounds = 0
        self._of = -1
        """The workload of these ratios."""
        self._said: tuple[int, str, str] | None = None
        self._at = 0.0

    def step(self, workload: Workload, kernel: str, text: str) -> None:
        word, now = text.split(" ")[0], time.monotonic()
        self.stopwatch.step = text.rpartition(": ")[2].split(" ")[0]
        said = self.position, "" if word in IN_TURN else kernel, word
        if said != self._said or now - self._at >= EVERY_S:
            self._said, self._at = said, now
            self._tell(workload, kernel, text, self.telemetry())

    def saw(self, baseline: str, blocks: Mapping[str, list[list[float]]]) -> None:
        """Notes the last round: arm -> rounds -> times of a call. The ratios of single rounds are no verdict."""
        if self._of != self.position:
            self._of, self._ratios = self.position, {}
        base = statistics.median(blocks[baseline][-1])
        self._rounds = rounds = len(blocks[baseline])
        for arm, times in blocks.items():
            if arm != baseline and len(times) == rounds:
                self._ratios.setdefault(arm, []).append(base / statistics.median(times[-1]))

    @property
    def so_far(self) -> dict[str, list[float]]:
        """Kernel -> the ratios of the newest rounds of this workload."""
        if self._of != self.position:
            return {}
        return {arm: [round(ratio, 4) for ratio in found[-MOST_ROUNDS:]] for arm, found in self._ratios.items()}

    def waiting(self, workload: Workload, sentence: str) -> None:
        """Reports why nothing runs yet."""
        now = time.monotonic()
        if now - self._at >= EVERY_S:
            self._at = now
            self._tell(workload, "", sentence, {})

    def _tell(self, workload: Workload, kernel: str, text: str, telemetry: dict[str, Any]) -> None:
        state = {"position": self.position, "total": self.total, "workload": workload.label, "kernel": kernel}
        self.live(
            state
            | {
                "step": text,
                "log": self.log()[-LOG_BYTES:],
                "telemetry": telemetry,
                "so_far": self.so_far,
                "rounds": self._rounds,
            }
        )
