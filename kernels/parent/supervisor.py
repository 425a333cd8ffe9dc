"""The supervisor: measures a RunSpec on one device, one workload at a time, and emits its events.

It owns the device's lock, the order of things and the events. What a workload goes through is in engine.py and
workload_run.py, what follows after all timing in crosscheck.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.analysis.ceilings import ceilings
from kernels.contract.environment import fingerprint
from kernels.contract.events import Calibrated, Event, Preflight, Started
from kernels.host import telemetry
from kernels.host.device import Device, locked
from kernels.host.environment import commit
from kernels.parent.child_process import Cancelled, Child, ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.context import RunContext
from kernels.parent.crosscheck import crosscheck
from kernels.parent.progress import Progress
from kernels.parent.results import json_safe
from kernels.parent.session import ChildSession
from kernels.parent.workload_run import Statuses, WorkloadRun
from kernels.workload import Ceilings, RunSpec

CALIBRATE_LIMIT_S = 120.0


class WrongEnvironment(Exception):
    """A resumed run found another driver, torch, ... than its first results: they may not be mixed."""


Emit = Callable[[Event], None]
"""Takes Started, Calibrated, Measured and CrossChecked."""


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
        self.spec, self.device, self.emit, self.should_stop = spec, device, emit, should_stop
        self.session = ChildSession(device, should_stop, warm_child)
        self.progress = Progress(live, len(spec.workloads))
        self.progress.log = self.session.log_tail

    def run(self) -> None:
        """Measures what is not done yet. Raises Cancelled; anything that belongs to a kernel becomes its result."""
        first = self.spec.workloads[0]
        try:
            with (
                locked(self.device, self.should_stop, lambda sentence: self.progress.waiting(first, sentence)),
                telemetry.watching(self.device) as watch,
            ):
                self.progress.telemetry = watch.now
                context = self._start(watch)
                self.emit(crosscheck(context, self._measure(context)))
        except InterruptedError:
            raise Cancelled from None
        finally:
            self.session.close()

    def log_tail(self) -> str:
        return self.session.log_tail()

    def _start(self, watch: telemetry.Telemetry) -> RunContext:
        environment, device = self.session.wait_ready(), self.device
        environment |= {"driver": device.driver, "uuid": device.uuid, "max_sm_mhz": device.max_sm_mhz}
        environment["commit"] = commit()
        print_ = fingerprint(environment)
        if self.spec.fingerprint and self.spec.fingerprint != print_:
            raise WrongEnvironment(
                "the environment of this device has changed since this run began (driver, torch, ...): "
                "run it again as a new run"
            )
        preflight = Preflight(others=watch.others(), start=watch.now())
        self.emit(Started(environment=json_safe(environment), fingerprint=print_, preflight=preflight))
        known = self.spec.ceilings or self._calibrate()
        return RunContext(self.spec, device, environment, known, self.session, watch, self.progress)

    def _calibrate(self) -> Ceilings | None:
        """What the device reaches at most; None if that could not be measured, and then no time is compared with it."""
        if self.spec.protocol.verify_only:
            return None
        self.progress.step(self.spec.workloads[0], "", "calibrate")
        try:
            found = ceilings(self.session.child.call("calibrate", CALIBRATE_LIMIT_S))
        except (CommandFailed, ChildDied, ChildTimedOut):
            self.session.replace()
            return None
        self.emit(Calibrated(driver=self.device.driver, ceilings=found))
        return found

    def _measure(self, context: RunContext) -> Statuses:
        """What became of each kernel on each workload that this attempt has measured."""
        statuses: Statuses = {}
        for self.progress.position, workload in enumerate(self.spec.workloads):
            if workload.key not in self.spec.done:
                one = WorkloadRun(context, workload, statuses)
                for event in one.measure():
                    self.emit(event)
                statuses |= {(workload.key, arm.name): arm.status for arm in one.arms}
        return statuses
