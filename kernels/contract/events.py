"""The events of a run: one model each, from the measuring process to the page.

A run emits Started; Calibrated, if the device's ceilings are unknown; one Measured for each group of each workload;
CrossChecked; and Finished. The site keys a measurement by (run, workload, mode, group, process).

Names of times end in their unit; ratios have none. None means "not measured". Unknown fields are dropped, so that a
newer agent can report to an older site.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AwareDatetime, Field, model_validator

from kernels.contract.arm_result import ArmResult, CrossCheck, Model, Ratio, Spread, Text
from kernels.workload import Ceilings, Workload

VERSION: Literal[2] = 2
"""The version of lines and exports. kernels/contract/upgrade.py reads version 1."""


class Ending(StrEnum):
    """How a run ended, as reported by its agent."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


# --- the events -------------------------------------------------------------------------------------------------------


class Preflight(Model):
    """The device before the run."""

    others: list[int] = []
    """Ids of foreign processes on the device."""
    start: dict[str, int | float] = {}
    """sm_mhz, power_w, temperature_c, throttle (bits)."""


class Started(Model):
    kind: Literal["started"] = "started"
    environment: dict[str, Any]
    fingerprint: str
    preflight: Preflight = Preflight()


class Calibrated(Model):
    kind: Literal["calibrated"] = "calibrated"
    driver: str = ""
    ceilings: Ceilings


class ProtocolFacts(Model):
    """How the protocol ran. None: nothing was timed."""

    paired: bool | None = None
    sets: int | None = None
    """Number of input sets that calls rotate over."""
    covered: bool | None = None
    """The input sets together exceed the cache."""
    flushed: bool | None = None
    """The L2 cache was evicted before each call."""
    rest: float | None = None
    """Rest before each block, as a multiple of the block's length."""
    rounds: int | None = None
    orders: list[list[str]] | None = None
    """Order of the arms in each round."""
    repeated: int | None = None
    """Rounds repeated because heat slowed the device down."""
    rounds_s: float | None = None
    seed: int | None = None
    """Of all inputs and orders. As a protocol's seed it repeats the measurement."""


class TelemetrySummary(Model):
    """NVML telemetry during the rounds."""

    samples: int = 0
    sm_mhz: Spread | None = None
    power_w: Spread | None = None
    temperature_c: Spread | None = None
    throttled: list[str] = []


class Measured(Model):
    """One workload and one group of arms timed in the same rounds. Every ratio uses samples of one process."""

    kind: Literal["measured"] = "measured"
    workload: Workload
    key: str = ""
    """Of the workload."""
    mode: str
    """cpu, cold, graph, warm, sustained, e2e, or verify."""
    group: str = "main"
    process: int = Field(0, ge=0)
    """Index of the measuring process, if a run measures a workload in several."""
    isolated: bool = False
    """Each arm ran in its own process."""
    baseline: str
    margin: float
    """Smaller differences are SAME."""
    aa: Ratio | None = None
    """The baseline against itself."""
    aa_samples_ns: list[list[float]] | None = None
    protocol: ProtocolFacts = ProtocolFacts()
    telemetry: TelemetrySummary = TelemetrySummary()
    notes: list[Text] = []
    took_s: float | None = None
    results: list[ArmResult]

    @model_validator(mode="after")
    def is_of_one_workload(self) -> Measured:
        if self.key and self.key != self.workload.key:
            raise ValueError(f"its workload has the key {self.workload.key}, not {self.key}")
        self.__dict__["key"] = self.workload.key
        names = [arm.kernel for arm in self.results]
        if len(set(names)) < len(names):
            raise ValueError("a kernel has two results")
        if any(arm.kernel == self.baseline and arm.speedup is not None for arm in self.results):
            raise ValueError(f"the baseline {self.baseline} has a speedup over itself")
        return self

    @property
    def place(self) -> tuple[str, str, str, int]:
        """Key of a measurement within its run."""
        return self.key, self.mode, self.group, self.process

    @property
    def base(self) -> ArmResult | None:
        """The baseline's result, if it has a time."""
        return next((arm for arm in self.results if arm.kernel == self.baseline and arm.p50_ms is not None), None)


class Seen(Model):
    """Cross-check of one kernel on one workload."""

    key: str
    kernel: str
    ran: list[tuple[Text, int]] = []
    check: CrossCheck | None = None


class CrossChecked(Model):
    kind: Literal["crosschecked"] = "crosschecked"
    seen: list[Seen]

    def added_to(self, measurements: list[Measured]) -> Iterator[Measured]:
        """The measurements, with each result's cross-check added."""
        seen = {(one.key, one.kernel): one for one in self.seen}
        for measured in measurements:
            results = [_with_check(arm, seen.get((measured.key, arm.kernel))) for arm in measured.results]
            yield measured.model_copy(update={"results": results})


def _with_check(arm: ArmResult, seen: Seen | None) -> ArmResult:
    return arm.model_copy(update={"ran": seen.ran, "crosscheck": seen.check}) if seen else arm


class Finished(Model):
    kind: Literal["finished"] = "finished"
    state: Ending
    message: Text = ""
    log: Text = ""


Event = Started | Calibrated | Measured | CrossChecked | Finished


class Line(Model):
    """An event as the agent's journal stores and sends it."""

    version: Literal[2] = VERSION
    run: int
    attempt: int
    seq: int
    """1 for the first of the attempt."""
    at: AwareDatetime
    event: Annotated[Event, Field(discriminator="kind")]


class SentLine(NamedTuple):
    """A line as sent from an agent to the recorder: its key, and its JSON from the journal."""

    run: int
    attempt: int
    seq: int
    body: str
    """JSON of a Line."""
