"""Measures settings of one kernel beside its own choice: by the supervisor that measures everything, in new processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kernels.contract.events import Calibrated, Event, Measured, Started
from kernels.contract.search import OnWorkload
from kernels.host.device import Device
from kernels.parent.child_process import Child
from kernels.parent.supervisor import Emit, Supervisor
from kernels.protocol import EFFORTS
from kernels.protocol import Protocol as Plan
from kernels.settings import Settings, variant
from kernels.tuning.gates import shown
from kernels.workload import Ceilings, RunSpec

COMPILE_LIMIT_S = 60.0
"""Of one kernel with one settings: what compiles longer is pruned."""
LESS = ("min_rounds", "max_rounds", "budget_s", "warmup_s")
Live = Callable[[dict[str, Any]], None]


def quick(plan: Plan) -> Plan:
    """The protocol of the screening: *quick*, or less where the config asks for less."""
    values = EFFORTS["quick"] | {name: min(EFFORTS["quick"][name], getattr(plan, name)) for name in LESS}
    return plan.model_copy(update=values | {"compile_limit_s": min(COMPILE_LIMIT_S, plan.compile_limit_s)})


def thorough(plan: Plan, processes: int) -> Plan:
    """The protocol of the finalists: that of the config, in several fresh processes."""
    limit = {"compile_limit_s": min(COMPILE_LIMIT_S, plan.compile_limit_s)}
    return plan.model_copy(update={"processes": processes} | limit)


class Measures(Protocol):
    """What a search measures with."""

    def measure(
        self, settings: Sequence[Settings], plan: Plan, should_stop: Callable[[], bool], live: Live
    ) -> list[list[OnWorkload]]:
        """For each settings what every workload showed, all in the same rounds. Raises Cancelled if it is stopped."""


class Instrument:
    """Each call is a run of its own: it takes the device's lock, starts new processes, and ends them."""

    def __init__(self, spec: RunSpec, device: Device, emit: Emit, warm: Child | None = None) -> None:
        """emit: gets the first Started and the first Calibrated."""
        self.spec, self.device, self.emit, self.warm = spec, device, emit, warm
        self.kernel = spec.kernels[-1]
        self.started: Started | None = None
        self.ceilings: Ceilings | None = spec.ceilings
        self.calibrated = False
        self.supervisor: Supervisor | None = None

    def measure(
        self, settings: Sequence[Settings], plan: Plan, should_stop: Callable[[], bool], live: Live
    ) -> list[list[OnWorkload]]:
        own = variant(self.kernel, None)
        names = [variant(self.kernel, one) for one in settings]
        found: list[Measured] = []
        warm, self.warm = self.warm, None
        self.supervisor = Supervisor(
            self._spec([own, *names], plan), self.device, self._take(found), live, should_stop, warm, crosschecks=False
        )
        self.supervisor.run()
        return [self._shown(found, name, own) for name in names]

    def _spec(self, names: list[str], plan: Plan) -> RunSpec:
        known = {"fingerprint": self.started.fingerprint} if self.started else {}
        only = {"kernels": names, "baseline": names[0], "protocol": plan, "tune": None, "tried": [], "done": []}
        return self.spec.model_copy(update=only | known | {"ceilings": self.ceilings})

    def _take(self, found: list[Measured]) -> Emit:
        def take(event: Event) -> None:
            match event:
                case Started() if self.started is None:
                    self.started = event
                    self.emit(event)
                case Calibrated():
                    self.ceilings = event.ceilings or self.ceilings
                    if not self.calibrated:
                        self.calibrated = True
                        self.emit(event)
                case Measured():
                    found.append(event)

        return take

    @staticmethod
    def _shown(found: list[Measured], name: str, own: str) -> list[OnWorkload]:
        """Of each workload the measurement in which it was timed, else the first."""
        chosen: dict[str, Measured] = {}
        for one in found:
            mine = next((arm for arm in one.results if arm.kernel == name), None)
            if mine and (one.key not in chosen or mine.p50_ms is not None):
                chosen[one.key] = one
        return [shown(one, name, own) for one in chosen.values()]
