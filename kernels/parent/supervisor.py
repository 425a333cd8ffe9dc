"""The supervisor: measures a RunSpec on one device, one workload at a time, and emits its events.

It owns the device's lock, the order and the events. engine.py and workload_run.py measure a workload; crosscheck.py
follows after all timing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from kernels.analysis.statistics import WIDEST_MARGIN
from kernels.contract.environment import fingerprint
from kernels.contract.events import CrossChecked, Event, Preflight, Started, Timing
from kernels.host import telemetry
from kernels.host.device import Device, locked
from kernels.host.environment import commit
from kernels.parent.calibration import calibrate
from kernels.parent.child_process import Cancelled, Child, ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.context import RunContext
from kernels.parent.crosscheck import crosscheck
from kernels.parent.isolated_run import IsolatedRun
from kernels.parent.progress import Progress
from kernels.parent.results import json_safe
from kernels.parent.session import ChildSession
from kernels.parent.stopwatch import Stopwatch, added
from kernels.parent.workload_run import Statuses, WorkloadRun
from kernels.workload import Ceilings, RunSpec


class WrongEnvironment(Exception):
    """A resumed run found a changed environment (driver, torch, ...): results must not be mixed."""

    def __init__(self, found: dict[str, Any]) -> None:
        super().__init__("the environment changed during this run (driver, torch, ...): start a new run")
        self.found = found


Emit = Callable[[Event], None]
"""Receives Started, Calibrated, Measured and CrossChecked."""


class Supervisor:
    """One run. `emit` receives events, which must not be lost; `live` receives progress, which may be lost."""

    def __init__(
        self,
        spec: RunSpec,
        device: Device,
        emit: Emit,
        live: Callable[[dict[str, Any]], None] = lambda state: None,
        should_stop: Callable[[], bool] = lambda: False,
        warm_child: Child | None = None,
        before: Statuses | None = None,
        crosschecks: bool = True,
    ) -> None:
        """before: how the kernels ended on workloads that earlier attempts measured, where that is known."""
        self.before, self.crosschecks = before or {}, crosschecks
        self.spec, self.device, self.emit, self.should_stop = spec, device, emit, should_stop
        self.stopwatch = Stopwatch()
        self.outside: Timing = {}
        """Seconds by phase outside the workloads."""
        self.session = ChildSession(device, should_stop, warm_child, self.stopwatch, spec.protocol.processes > 1)
        self.progress = Progress(live, len(spec.workloads), self.stopwatch)
        self.progress.log = self.session.log
        self.fetched: dict[str, str] = {}
        """Kernels whose files came from a repository -> the sha256 of the files."""
        self.doubtful = False
        """Whether this run's ceilings are to be measured again at its end: the device was busy."""

    def run(self) -> None:
        """Measures the remaining workloads. Raises Cancelled; an error of a kernel becomes its result."""
        first = self.spec.workloads[0]
        try:
            with ExitStack() as held:
                with self.stopwatch.during("wait"):
                    waiting = partial(self.progress.waiting, first)
                    held.enter_context(locked(self.device, self.should_stop, waiting))
                watch = held.enter_context(telemetry.watching(self.device))
                self.progress.telemetry = watch.now
                context = self._start(watch)
                statuses = self._measure(context)
                self.session.replace_after_timing()
                if (
                    self.doubtful and self.device.kind == "cuda"
                ):  # of a CPU they limit nothing: the next run measures them
                    self._calibrate(watch)
                # A cross-check would run kernels in a process that is not isolated.
                skipped = self.spec.protocol.isolated or not self.crosschecks
                checked = CrossChecked(seen=[]) if skipped else crosscheck(context, statuses)
                self._take_outside()
                self.emit(checked.model_copy(update={"timing": self.outside}))
        except InterruptedError:
            raise Cancelled from None
        finally:
            self.session.close()
            self._take_outside()

    def log(self) -> str:
        return self.session.log()

    def _start(self, watch: telemetry.Telemetry) -> RunContext:
        environment = self._started(watch)
        known = self.spec.ceilings or self._calibrate(watch)
        return RunContext(self.spec, self.device, environment, known, self.session, watch, self.progress)

    def _started(self, watch: telemetry.Telemetry) -> dict[str, Any]:
        """Says what it runs on; returns the environment. Raises WrongEnvironment."""
        environment, device = self.session.wait_ready(), self.device
        environment |= {"driver": device.driver, "uuid": device.uuid, "max_sm_mhz": device.max_sm_mhz}
        environment |= {"commit": commit(), "board": watch.board()}
        print_ = fingerprint(environment)
        if self.spec.fingerprint and self.spec.fingerprint != print_:
            raise WrongEnvironment(environment)
        preflight = Preflight(others=watch.others(), start=watch.now(), fetched=self.fetched)
        self.emit(Started(environment=json_safe(environment), fingerprint=print_, preflight=preflight))
        return environment

    def _take_outside(self) -> None:
        self.outside = added(self.outside, self.stopwatch.take())

    def _calibrate(self, watch: telemetry.Telemetry) -> Ceilings | None:
        """Measures the device's ceilings. None if that fails or is refused: then times are not compared with them."""
        if self.spec.protocol.verify_only:
            return None
        self.progress.step(self.spec.workloads[0], "", "calibrate")
        try:
            with self.stopwatch.during("start"):
                self.session.child.wait_ready()
            with self.stopwatch.during("calibrate"):
                event = calibrate(self.session.child, self.device, watch)
        except (CommandFailed, ChildDied, ChildTimedOut):
            self.session.replace()
            return None
        self.emit(event)
        self.doubtful = event.ceilings is None
        return event.ceilings

    def _measure(self, context: RunContext) -> Statuses:
        """The status of each kernel on each workload measured in this attempt, and before."""
        statuses: Statuses = dict(self.before)
        for self.progress.position, workload in enumerate(self.spec.workloads):
            if workload.key not in self.spec.done:
                self._take_outside()
                kind = IsolatedRun if self.spec.protocol.isolated else WorkloadRun
                one = kind(context, workload, statuses)
                for event in one.measure():
                    self.emit(event)
                    self.doubtful |= self.spec.ceilings is None and event.margin > WIDEST_MARGIN
                statuses |= {(workload.key, arm.name): arm.status for arm in one.arms}
        return statuses
