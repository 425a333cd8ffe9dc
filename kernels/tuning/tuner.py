"""A search: screens trials in a sampler's order, then confirms the best in processes that they were not chosen in."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from kernels.contract.arm_result import Status
from kernels.contract.events import Confirmed, Started, Tried
from kernels.contract.search import Finalist, OnWorkload, Search, Trial
from kernels.parent.child_process import Cancelled
from kernels.parent.supervisor import Emit
from kernels.protocol import Protocol
from kernels.settings import Settings, spelled
from kernels.tuning import gates
from kernels.tuning.evolution import Asked, Known
from kernels.tuning.instrument import Live, Measures, quick, thorough
from kernels.tuning.samplers import sampler_of

SCREENING = 0.6
"""Share of the minutes for the screening; the rest is for the finalists."""
TABLE = "from the table"
MOST_MORE = 4
"""At most so many times as many settings as the plan says are tried at once, if the kernel refuses most of them."""


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


class Tuner:
    """`emit` gets Tried and Confirmed, which must not be lost; `search` is what is known so far."""

    def __init__(
        self,
        search: Search,
        instrument: Measures,
        emit: Emit,
        live: Live = lambda state: None,
        should_stop: Callable[[], bool] = lambda: False,
        first: Sequence[Settings] = (),
    ) -> None:
        """search: with the trials of an earlier part of it, if it is continued. first: settings to try before all others."""
        self.search, self.protocol, self.instrument = search, search.protocol, instrument
        self.emit, self.live, self.stopped = emit, live, should_stop
        self.plan = search.plan
        self.sampler = sampler_of(self.plan, search.space)
        for trial in search.trials:
            self.sampler.tell(_known(trial))
        tried = {spelled(trial.settings) for trial in search.trials}
        self.first = [one for one in first if spelled(one) not in tried]
        self.began, self.took_s = time.monotonic(), 0.0

    def run(self) -> Search:
        """Raises Cancelled if it was told to stop; `search` then has what was measured."""
        self._update(state="running")
        try:
            self._screen()
            self._confirm()
        except Cancelled:
            self._update(state="interrupted")
            raise
        except BaseException:
            self._update(state="failed")
            raise
        winner = self.search.winner
        self._update(state="done", best=winner.settings if winner else None)
        return self.search

    def started(self, event: Started) -> None:
        """Notes where it is measured."""
        self._update(environment=event.environment, fingerprint=event.fingerprint)

    def _update(self, **changes: Any) -> None:
        self.search = self.search.model_copy(update=changes)

    # --- time -----------------------------------------------------------------------------------------------------

    def _spent(self, share: float) -> bool:
        """Whether this share of the minutes is over."""
        return self.plan.minutes is not None and time.monotonic() - self.began > share * self.plan.minutes * 60

    def _should_stop(self) -> bool:
        return self.stopped() or self._spent(1.0)

    def _measured(
        self, settings: Sequence[Settings], protocol: Protocol, said: Callable[[str], str]
    ) -> list[list[OnWorkload]]:
        def live(state: dict[str, Any]) -> None:
            trials = {"position": min(len(self.search.trials), self.plan.trials - 1), "total": self.plan.trials}
            self.live(state | trials | {"step": said(f"{state['workload']}: {state['step']}"), "so_far": {}})

        return self.instrument.measure(settings, protocol, self._should_stop, live)

    # --- screening ------------------------------------------------------------------------------------------------

    def _screen(self) -> None:
        while len(self.search.trials) < self.plan.trials and not self._has_no_time():
            if not (asked := self._asked()):
                return
            if self.stopped():
                raise Cancelled
            began = time.monotonic()
            if (found := self._screened(asked)) is None:
                return
            self.took_s = time.monotonic() - began
            for one, results in zip(asked, found, strict=True):
                self._tried(one, results)

    def _screened(self, asked: list[Asked]) -> list[list[OnWorkload]] | None:
        """None: the minutes were over. What was not measured to its end is no trial."""
        last = len(self.search.trials) + len(asked)
        said = f"trial {last} of {self.plan.trials}"
        try:
            return self._measured([one.settings for one in asked], quick(self.protocol), lambda step: f"{said}: {step}")
        except Cancelled:
            if self.stopped():
                raise
            return None

    def _has_no_time(self) -> bool:
        if self.plan.minutes is None:
            return False
        return time.monotonic() - self.began + self.took_s > SCREENING * self.plan.minutes * 60

    def _wanted(self) -> int:
        """How many settings to try at once, so that about `together` of them can be timed: a kernel refuses others in an
        instant, but each process that is started takes seconds."""
        refused = sum(any(one.status == Status.UNSUPPORTED for one in trial.results) for trial in self.search.trials)
        share = (self.plan.together + len(self.search.trials) - refused) / (
            self.plan.together + len(self.search.trials)
        )
        return min(MOST_MORE * self.plan.together, math.ceil(self.plan.together / share))

    def _asked(self) -> list[Asked]:
        count = min(self._wanted(), self.plan.trials - len(self.search.trials))
        asked = [Asked(one, TABLE) for one in self.first[:count]]
        self.first = self.first[count:]
        while len(asked) < count and (more := self.sampler.ask()):
            if all(more.settings != one.settings for one in asked):
                asked.append(more)
        return asked

    def _tried(self, asked: Asked, results: list[OnWorkload]) -> None:
        pruned = gates.why_pruned(results, self.search.label)
        trial = Trial(
            number=len(self.search.trials) + 1,
            settings=asked.settings,
            origin=asked.origin,
            results=results,
            score=None if pruned else gates.score(results),
            pruned=pruned,
            fails=gates.why_fails(results, self.plan, self.search.label, confirmed=False),
            at=now(),
            took_s=round(self.took_s, 3),
        )
        self.sampler.tell(_known(trial))
        self._update(trials=[*self.search.trials, trial])
        self.emit(Tried(trial=trial))

    # --- finalists ------------------------------------------------------------------------------------------------

    def _confirm(self) -> None:
        done = {one.number for one in self.search.finalists}
        left = [trial for trial in finalists(self.search) if trial.number not in done]
        if not left:
            return
        if self.stopped():
            raise Cancelled
        protocol = thorough(self.protocol, self.plan.processes)
        try:
            found = self._measured(
                [trial.settings for trial in left], protocol, lambda step: f"{len(left)} finalists: {step}"
            )
        except Cancelled:
            if self.stopped():
                raise
            return  # the minutes are over: nothing is confirmed
        for trial, results in zip(left, found, strict=True):
            self._confirmed(trial, gates.for_all(results, len(left)))

    def _confirmed(self, trial: Trial, results: list[OnWorkload]) -> None:
        finalist = Finalist(
            number=trial.number,
            settings=trial.settings,
            results=results,
            score=gates.score(results),
            fails=gates.why_fails(results, self.plan, self.search.label, confirmed=True),
            at=now(),
        )
        self._update(finalists=[*self.search.finalists, finalist])
        self.emit(Confirmed(finalist=finalist))


def finalists(search: Search) -> list[Trial]:
    """The best trials: those that pass every gate first. One that is not faster than the kernel's own choice is none."""
    alive = [trial for trial in search.trials if trial.score is not None and trial.score > 1]
    return sorted(alive, key=lambda one: (bool(one.fails), -(one.score or 0.0), one.number))[: search.plan.finalists]


def _known(trial: Trial) -> Known:
    return Known(trial.number, trial.settings, trial.score, not trial.fails)
