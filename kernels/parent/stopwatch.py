"""Where the seconds of a run go, by the parent's clock: at every moment exactly one phase runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kernels.contract.events import Phase, Timing

OF_COMMAND: Mapping[str, Phase] = {
    "open": "inputs",
    "prepare": "inputs",
    "keep": "check after",
    "watch": "check",
    "load": "load",
    "compile": "first call",
    "quiet": "check",
    "verify": "check",
    "forget_references": "check",
    "recheck": "check after",
    "probe": "probes",
    "let_go": "probes",
    "capture": "captures",
    "drop_graphs": "captures",
    "calibrate": "calibrate",
}
"""Commands of the bench that are always the same phase."""
OF_STEP: Mapping[str, Phase] = {
    "estimate": "estimate",
    "warm-up": "warm-up",
    "round": "rounds",
    "single": "single calls",
    "checking": "check after",
}
"""First word of a step (Progress) -> the phase of commands that run kernels: block, replay, e2e, sustained."""
ELSEWHERE: Phase = "rounds"


class Stopwatch:
    """Adds up seconds by phase. What belongs to no phase is "host": decisions, statistics, writing."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.step = ""
        """First word of the step that the run is in."""
        self._spent: dict[Phase, float] = {}
        self._phase: Phase = "host"
        self._since = now()

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """The time inside is this phase's, but for phases inside it."""
        outer = self._phase
        self._enter(phase)
        try:
            yield
        finally:
            self._enter(outer)

    @contextmanager
    def command(self, do: str, arguments: Mapping[str, Any]) -> Iterator[None]:
        """The time of a command of the bench: its phase's. The rest that it asks for is the phase "rests"."""
        phase = self.phase_of(do)
        begin = self.now()
        with self.during(phase):
            yield
        if rest_s := min(arguments.get("rest_ns", 0) / 1e9, self.now() - begin):
            self._spent[phase] -= rest_s
            self._spent["rests"] = self._spent.get("rests", 0.0) + rest_s

    def phase_of(self, do: str) -> Phase:
        if self.step == "cross-check":
            return "cross-check"
        if do in OF_COMMAND:
            return OF_COMMAND[do]
        return OF_STEP.get(self.step, ELSEWHERE)

    def _enter(self, phase: Phase) -> None:
        now = self.now()
        self._spent[self._phase] = self._spent.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase, now

    def take(self) -> Timing:
        """Seconds by phase since the last take."""
        self._enter(self._phase)
        spent, self._spent = self._spent, {}
        return {phase: round(seconds, 4) for phase, seconds in spent.items() if seconds > 0}


def added(some: Mapping[str, float], others: Mapping[str, float]) -> Timing:
    """Both together, by phase."""
    return {phase: round(some.get(phase, 0.0) + others.get(phase, 0.0), 4) for phase in [*some, *others]}
