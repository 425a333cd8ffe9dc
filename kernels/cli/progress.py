"""Progress of a run on standard error: a bar on a terminal, elsewhere one line for each thing that is finished."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

from kernels.contract.arm_result import Status
from kernels.host.device import WAITS
from kernels.report.cells import microseconds
from kernels.report.tables import Row

BAR = 24
"""Width of the progress bar in characters."""
DONE = {"compile": "checked", "verify": "checked", "calibrate": "device calibrated", "cross-check": "cross-checked"}
"""First word of a step -> what is done when the step is over. Steps without an entry get no line."""


class Progress:
    """Says on standard error how far a run is. A closed terminal is no error."""

    def __init__(self) -> None:
        self.stream, self.began = sys.stderr, time.monotonic()
        self.is_terminal = self.stream.isatty()
        self.waited = ""
        self.doing, self.since = "", self.began

    def say(self, line: str) -> None:
        with contextlib.suppress(OSError):
            print(line, file=self.stream, flush=True)

    def live(self, state: dict[str, Any]) -> None:
        """Takes the state that a supervisor reports."""
        if self.is_terminal:
            self._draw(state)
        elif state["step"].startswith(WAITS):
            if not self.waited:
                self.say(state["step"])
            self.waited = state["step"]
        else:
            word, kernel = DONE.get(state["step"].rpartition(": ")[2].split(" ")[0], ""), state["kernel"]
            self._change(f"{state['workload']}: {kernel} {word}" if word and kernel else word)

    def _draw(self, state: dict[str, Any]) -> None:
        done, total = state["position"], state["total"]
        bar = "#" * round(BAR * done / total)
        what = f"{state['kernel']} on {state['workload']}: {state['step']}" if state["kernel"] else state["step"]
        text = f"[{bar:.<{BAR}}] {done + 1} of {total}, {what}"
        with contextlib.suppress(OSError):
            print(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", end="", file=self.stream, flush=True)

    def _change(self, doing: str) -> None:
        """Begins something else; says what is finished."""
        if doing == self.doing:
            return
        was, now = self.doing, time.monotonic()
        if was:
            self._line(f"{was} in {now - self.since:.1f} s")
        self.doing, self.since = doing, now

    def _line(self, text: str) -> None:
        self.say(f"{time.monotonic() - self.began:8.1f} s  {text}")

    def measured(self, progress: str, rows: Sequence[Row], took_s: float | None) -> None:
        """A workload is measured: its line. progress: "3 of 8 measured"."""
        if self.is_terminal or not rows:
            return
        self._change("")
        figures = ", ".join(f"{row.kernel} {_figure(row)}" for row in rows)
        took = "" if took_s is None else f"; {took_s:.1f} s"
        self._line(f"{progress}: {rows[0].workload}: {figures}{took}")

    def end(self) -> None:
        """Nothing more is measured."""
        self._change("")
        if self.is_terminal:
            with contextlib.suppress(OSError):
                print("\r\x1b[K", end="", file=self.stream, flush=True)


def _figure(row: Row) -> str:
    if row.status != Status.OK or row.p50_ms is None:
        return str(row.verdict)
    return f"{microseconds(row.p50_ms)} us"
