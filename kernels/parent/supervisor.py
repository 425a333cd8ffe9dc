"""The parent of a measurement: runs a RunSpec on one device through a measuring child, one workload at a time.

It owns seeds, statistics and verdicts; the child reports raw readings. What a workload goes through is in measuring.py,
what follows after all timing in crosscheck.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kernels.analysis.ceilings import ceilings
from kernels.contract.environment import fingerprint
from kernels.host import telemetry
from kernels.host.device import Device, locked
from kernels.host.environment import commit
from kernels.parent.arm import Arm
from kernels.parent.child_process import Cancelled, Child, ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.crosscheck import crosscheck
from kernels.parent.results import storable
from kernels.parent.workload_run import Measuring
from kernels.workload import RunSpec, Workload

LIVE_EVERY_S = 0.3
CALIBRATE_LIMIT_S = 120.0
LOG_TAIL, LIVE_LOG = 16_000, 8_000
ERROR_TAIL = 4_000


class WrongEnvironment(Exception):
    """A resumed run found another driver, torch, ... than its first results: they may not be mixed."""


Emit = Callable[[str, dict[str, Any]], None]
"""Takes an event's kind and data: started, calibrated, measured, crosschecked."""


class Supervisor:
    """One run. `emit` gets what must not be lost; `live` gets progress, which may be."""

    def __init__(
        self,
        spec: RunSpec,
        device: Device,
        emit: Emit,
        live: Callable[[dict[str, Any]], None] = lambda state: None,
        should_stop: Callable[[], bool] = lambda: False,
        warm_child: Child | None = None,
    ) -> None:
        self.spec, self.device, self.live, self.should_stop = spec, device, live, should_stop
        self.emit: Emit = lambda kind, data: emit(kind, storable(data))
        self.warm_child = warm_child
        self.child: Child | None = None
        self.logs: list[str] = []
        self.position, self.last_live = 0, 0.0
        self.current: tuple[int, str, str] | None = None
        self.standing: dict[tuple[str, str], str] = {}
        """(workload's key, kernel) -> status, of what this attempt has measured."""

    # --- the run --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Measures what is not done yet. Raises Cancelled; anything that belongs to a kernel becomes its result."""
        try:
            with (
                locked(self.device, self.should_stop, self._waiting),
                telemetry.watching(self.device) as self.telemetry,
            ):
                self._start()
                done = set(self.spec.done)
                for self.position, workload in enumerate(self.spec.workloads):
                    if workload.key not in done:
                        self._measure(workload)
                self.emit("crosschecked", crosscheck(self))
        except InterruptedError:
            raise Cancelled from None
        finally:
            if self.child:
                self.child.close()
            if self.warm_child:
                self.warm_child.close()

    def _waiting(self, sentence: str) -> None:
        now = time.monotonic()
        if now - self.last_live >= LIVE_EVERY_S:
            self.last_live = now
            self._tell("", sentence, self.spec.workloads[0], {})

    def _start(self) -> None:
        environment = self.ensure_child().wait_ready()
        device = self.device
        environment |= {"driver": device.driver, "uuid": device.uuid, "max_sm_mhz": device.max_sm_mhz}
        environment["commit"] = commit()
        self.environment, self.fingerprint = environment, fingerprint(environment)
        if self.spec.fingerprint and self.spec.fingerprint != self.fingerprint:
            raise WrongEnvironment(
                "the environment of this device has changed since this run began (driver, torch, ...): "
                "run it again as a new run"
            )
        preflight = {"others": self.telemetry.others(), "start": self.telemetry.now()}
        self.emit("started", {"environment": environment, "fingerprint": self.fingerprint, "preflight": preflight})
        self.ceilings = self.spec.ceilings or self._calibrate()

    def _calibrate(self) -> dict[str, Any] | None:
        """What the device reaches at most; None if that could not be measured, and then nothing is held against it."""
        if self.spec.protocol.verify_only:
            return None
        self.current = None
        self.step("", "calibrate", self.spec.workloads[0])
        try:
            found = ceilings(self.ensure_child().call("calibrate", CALIBRATE_LIMIT_S))
        except (CommandFailed, ChildDied, ChildTimedOut):
            self.retire_child()
            return None
        self.emit("calibrated", {"driver": self.device.driver, "ceilings": found})
        return found

    def _measure(self, workload: Workload) -> None:
        self.workload = workload
        measuring = Measuring(self, workload)
        measuring.measure()
        self.standing |= {(workload.key, arm.name): arm.status for arm in measuring.arms}

    # --- the child ------------------------------------------------------------------------------------------------

    def ensure_child(self) -> Child:
        """The child at work: the warm one first, a new one after a crash."""
        if self.child is None or not self.child.alive:
            self.retire_child()
            self.child, self.warm_child = self.warm_child or Child(self.device), None
            self.child.should_stop = self.should_stop
        return self.child

    def retire_child(self) -> None:
        if self.child is not None:
            self.logs.append(self.child.log.tail())
            self.child.close()
            self.child = None

    def log_tail(self) -> str:
        parts = [*self.logs, self.child.log.tail() if self.child else ""]
        return "".join(parts)[-LOG_TAIL:]

    def attempt(self, arm: Arm, do: str, limit_s: float, **arguments: Any) -> dict[str, Any] | None:
        """A command that belongs to one arm. What goes wrong becomes the arm's result, and None comes back."""
        child = self.ensure_child()
        try:
            return child.call(do, limit_s, arm=arm.name, **arguments)
        except (CommandFailed, ChildDied, ChildTimedOut) as error:
            self.blame(arm, do, error)
            return None

    def blame(self, arm: Arm, doing: str, error: Exception) -> None:
        log = self.child.log.tail(ERROR_TAIL) if self.child else ""
        if arm.blame(doing, error, log):
            self.retire_child()

    # --- progress -------------------------------------------------------------------------------------------------

    def step(self, kernel: str, text: str, workload: Workload | None = None) -> None:
        """Progress, at most a few times a second."""
        now = time.monotonic()
        word = text.split(" ")[0]
        in_turn = word in ("round", "warm-up")
        state = (self.position, "" if in_turn else kernel, word)
        if state == self.current and now - self.last_live < LIVE_EVERY_S:
            return
        self.current, self.last_live = state, now
        self._tell(kernel, text, workload or self.workload, self.telemetry.now())

    def _tell(self, kernel: str, text: str, workload: Workload, telemetry: dict[str, Any]) -> None:
        state = {"position": self.position, "total": len(self.spec.workloads), "workload": workload.label}
        self.live(state | {"kernel": kernel, "step": text, "log": self.log_tail()[-LIVE_LOG:], "telemetry": telemetry})
