"""One run on this agent: events go to the journal, progress to the broker."""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from typing import Any

from pydantic import ValidationError
from redis.exceptions import RedisError

from kernels.contract.events import Ending, Event, Finished
from kernels.host.device import Device
from kernels.parent.child_process import Cancelled, Child, ChildDied
from kernels.parent.results import json_safe
from kernels.parent.supervisor import Supervisor, WrongEnvironment
from kernels.workload import RunSpec
from runs.agent.journal import Journal
from runs.broker import BrokerKeys

log = logging.getLogger(__name__)
LOOK_EVERY_S = 0.5


class Execution:
    """Executes a received spec. In every case the run ends, or stays resumable."""

    def __init__(
        self, spec: dict[str, Any], device: Device, journal: Journal, keys: BrokerKeys, warm: Child | None
    ) -> None:
        self.run_id, self.attempt = int(spec.get("run", 0)), int(spec.get("attempt", 0))
        self.raw, self.device, self.journal, self.keys, self.warm = spec, device, journal, keys, warm
        self.supervisor: Supervisor | None = None
        self._looked, self._why = 0.0, ""

    def run(self) -> None:
        if not self.journal.begin(self.run_id, self.attempt):
            log.warning("run %s attempt %s came again and is ignored", self.run_id, self.attempt)
            return
        state, message = self._measure()
        if state is None:  # interrupted: the site resumes it
            self.journal.end(self.run_id, self.attempt, "interrupted")
            return
        tail = self.supervisor.log_tail() if self.supervisor else ""
        ending = Finished(state=state, message=json_safe(message), log=json_safe(tail))
        self.journal.write(self.run_id, self.attempt, ending)
        self.journal.end(self.run_id, self.attempt)

    def _measure(self) -> tuple[Ending | None, str]:
        """(ending, why). None: interrupted; the site resumes it."""
        try:
            spec = RunSpec(**self.raw)
            self.supervisor = Supervisor(spec, self.device, self._emit, self._live, self._should_stop, self.warm)
            self.supervisor.run()
            return Ending.DONE, ""
        except Cancelled:
            return (Ending.CANCELLED, "") if self._why == "cancelled" else (None, self._why)
        except (ValidationError, WrongEnvironment, ChildDied) as error:
            return Ending.FAILED, str(error)
        except Exception as error:
            log.exception("run %s failed", self.run_id)
            why = f"The agent failed: {type(error).__name__}: {error}\n{traceback.format_exc()[-3000:]}"
            return Ending.FAILED, why

    def _emit(self, event: Event) -> None:
        self.journal.write(self.run_id, self.attempt, event)

    def _live(self, state: dict[str, Any]) -> None:
        with contextlib.suppress(RedisError):  # progress may be lost
            self.keys.show(self.run_id, state | {"attempt": self.attempt, "at": time.time()})

    def _should_stop(self) -> bool:
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY_S:
            self._looked, self._why = now, self.journal.why_stop(self.run_id, self.attempt)
        return bool(self._why)
