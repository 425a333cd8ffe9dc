"""One run on this agent: events go to the journal, progress to the broker."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
import traceback
from typing import Any

from redis.exceptions import RedisError

from kernels.contract.events import Ending, Event, Finished
from kernels.contract.fitting import fitted
from kernels.host.device import WAITS, Device
from kernels.host.logs import about
from kernels.parent.child_process import Cancelled, Child, ChildDied, ChildTimedOut
from kernels.parent.results import json_safe
from kernels.parent.supervisor import Supervisor, WrongEnvironment
from kernels.profiling.profiling_run import ProfilingRun
from kernels.tuning.of_spec import tune
from kernels.tuning.samplers import CannotTune
from kernels.workload import RunSpec
from runs.agent.current import Current
from runs.agent.fetching import NotFetched
from runs.agent.journal import MAX_UNCONFIRMED, Journal
from runs.agent.submitted import UnknownSpec, read_spec, submitted
from runs.broker import BrokerKeys

log = logging.getLogger(__name__)
TRY_AGAIN_S = 1.0


class Execution:
    """Executes a received spec. In every case the run ends, or stays resumable."""

    def __init__(
        self,
        spec: dict[str, Any],
        device: Device,
        journal: Journal,
        keys: BrokerKeys,
        current: Current,
        warm: Child | None = None,
    ) -> None:
        self.run_id, self.attempt = int(spec.get("run", 0)), int(spec.get("attempt", 0))
        self.raw, self.device, self.journal, self.keys, self.warm = spec, device, journal, keys, warm
        self.current = current
        self.supervisor: Supervisor | None = None

    def run(self) -> None:
        self.current.begin(self.run_id, self.attempt)
        try:
            with about(run=self.run_id, attempt=self.attempt):
                self._run()
        finally:
            self.current.end()

    def _run(self) -> None:
        if not self.journal.begin(self.run_id, self.attempt):
            log.warning("run %s attempt %s came again and is ignored", self.run_id, self.attempt)
            return
        log.info("began")
        state, message = self._measure()
        log.info("ended: %s", " ".join(filter(None, (state or "interrupted", message))))
        if state is None and message == "shutdown":  # the site resumes it
            return
        with contextlib.suppress(Cancelled):
            if state is not None:
                tail = self.supervisor.log() if self.supervisor else ""
                self._emit(Finished(state=state, message=json_safe(message), log=json_safe(tail)))
        try:
            self.journal.end(self.run_id, self.attempt)
        except sqlite3.OperationalError as error:  # what it has emitted keeps it from being begun again
            log.warning("run %s attempt %s could not be marked as ended: %s", self.run_id, self.attempt, error)

    def _measure(self) -> tuple[Ending | None, str]:
        """(ending, why). None: interrupted; the site resumes it."""
        try:
            spec = read_spec(self.raw)
            with submitted(spec.submissions) as fetched:
                if spec.tune:
                    self._tune(spec)
                else:
                    self._supervise(spec, fetched)
            return Ending.DONE, ""
        except Cancelled:
            why = self.current.why_stop()
            return (Ending.CANCELLED, "") if why == "cancelled" else (None, why)
        except (UnknownSpec, NotFetched, WrongEnvironment, ChildDied, ChildTimedOut, CannotTune) as error:
            return Ending.FAILED, str(error)
        except Exception as error:
            log.exception("run %s failed", self.run_id)
            why = f"The agent failed: {type(error).__name__}: {error}\n{traceback.format_exc()[-3000:]}"
            return Ending.FAILED, why

    def _supervise(self, spec: RunSpec, fetched: dict[str, str]) -> None:
        kind = ProfilingRun if spec.profile else Supervisor
        self.supervisor = kind(spec, self.device, self._emit, self._live, self._should_stop, self.warm)
        self.supervisor.fetched = fetched
        self.supervisor.run()

    def _tune(self, spec: RunSpec) -> None:
        """A search; it starts a supervisor for each batch of trials."""
        tune(spec, self.device, self._emit, self._live, self._should_stop, self.warm)

    def _emit(self, event: Event) -> None:
        """Writes an event; waits while the journal is full or cannot be written. Raises Cancelled if that takes until
        the attempt should stop."""
        event, said = fitted(event), ""
        while True:
            stop = self._should_stop()
            try:
                if stop or self.journal.unconfirmed() < MAX_UNCONFIRMED:
                    self.journal.write(self.run_id, self.attempt, event)
                    return
                why = f"the site has not confirmed {MAX_UNCONFIRMED} events"
            except sqlite3.OperationalError as error:
                why = f"the agent's journal cannot be written ({error})"
                if stop:
                    raise Cancelled from None
            if why != said:
                log.warning("run %s attempt %s waits: %s", self.run_id, self.attempt, why)
            said = why
            if self.supervisor:
                self.supervisor.progress.waiting(self.supervisor.spec.workloads[0], f"{WAITS}: {why}")
            time.sleep(TRY_AGAIN_S)

    def _live(self, state: dict[str, Any]) -> None:
        with contextlib.suppress(RedisError):  # progress may be lost
            self.keys.show(self.run_id, state | {"attempt": self.attempt, "at": time.time()})

    def _should_stop(self) -> bool:
        return bool(self.current.why_stop())
