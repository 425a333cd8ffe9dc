"""Signals that ask the process to end."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
BASE_STATUS = 128
"""A shell reports a process that signal N ended as exit status 128 + N."""


class Stop:
    """Remembers the first of SIGNALS while it is entered. Called, it says whether there was one.

    A signal raises nothing, so it never interrupts a write or the start of a process: whoever waits must ask. Signals
    that the process ignores (nohup, a background job) stay ignored.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stop:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.signal else handler)  # a second one changes no exit status

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or signal.Signals(number)

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def status(self) -> int:
        """The exit status: 143 for SIGTERM, 130 for SIGINT, 129 for SIGHUP."""
        return BASE_STATUS + (self.signal or signal.SIGINT)
