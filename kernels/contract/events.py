"""The events of a run: one model each, from the measuring process to the page.

A run emits Started; Calibrated, if the device's ceilings are unknown, and once more at its end if they are refused or
doubtful; one Measured for each group of each workload; CrossChecked; one Examined for each profile that was asked for; and
Finished. The site keys a measurement by (run, workload, mode, group). A search emits one Tried for each trial and one
Confirmed for each finalist instead.

Names of times end in their unit; ratios have none. None means "not measured". Unknown fields are dropped, so that a
newer agent can report to an older site.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import AwareDatetime, Field, model_validator

from kernels.contract.arm_result import NO_SPEEDUP, ArmResult, CrossCheck, Model, Ratio, Spread, Status, Text
from kernels.contract.isolation import Isolation
from kernels.contract.profile import Profile
from kernels.contract.search import Finalist, Trial
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
    fetched: dict[str, str] = {}
    """Kernels whose files came from a repository -> the sha256 of the files."""


class Started(Model):
    kind: Literal["started"] = "started"
    environment: dict[str, Any]
    fingerprint: str
    preflight: Preflight = Preflight()


class Calibrated(Model):
    """The device's ceilings, or why they are refused: the device was busy."""

    kind: Literal["calibrated"] = "calibrated"
    driver: str = ""
    ceilings: Ceilings | None = None
    refused: Text = ""

    @model_validator(mode="after")
    def is_measured_or_refused(self) -> Calibrated:
        if (self.ceilings is None) != bool(self.refused):
            raise ValueError("ceilings are measured or refused")
        return self


Phase = Literal[
    "wait", "start", "calibrate", "load", "first call", "check", "inputs", "captures", "estimate", "warm-up", "rounds",
    "rests", "fresh inputs", "single calls", "check after", "probes", "cross-check", "host",
]  # fmt: skip
"""What a run spends time on, in its order. wait: for the device's lock. start: of processes, with imports and the device.
first call: with compilation. rests: as asked for. host: the parent itself."""
Timing = dict[str, float]
"""Phase -> seconds, by the parent's clock. Later versions may know other phases."""


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
    processes: int = 1
    """Fresh processes that measured the workload, one after the other."""
    process_sd: float | None = None
    """SD of a ratio between processes that the intervals assume, on the log scale."""
    process_sd_source: Text = ""
    """Where that was measured, as a phrase."""


MAIN, EAGER_LAUNCH = "main", "eager-launch"
"""Groups of a workload: all arms, and those that cannot be captured as a CUDA graph, or wait for the device themselves, with a
baseline of their own. With environment variables a group's name begins with a hash of them."""
BUSY_SHARE = 0.05
"""A CPU is contended if others took more than this share of its core time."""


class HostLoad(Model):
    """What others took of the host's CPU during the rounds: other processes, those of the site included, and the
    hypervisor. Shares are of the time of all cores."""

    foreign: float
    steal: float = 0.0
    """The hypervisor's part."""
    run_queue: float | None = None
    """Mean number of other tasks that ran or waited for a core, between rounds."""
    preempted: int | None = None
    """Involuntary context switches of the measuring processes."""
    cores: int | None = None

    @property
    def is_busy(self) -> bool:
        return self.foreign > BUSY_SHARE


class TelemetrySummary(Model):
    """Telemetry during the rounds: of the GPU by NVML, and of the host."""

    samples: int = 0
    sm_mhz: Spread | None = None
    power_w: Spread | None = None
    temperature_c: Spread | None = None
    throttled: list[str] = []
    host: HostLoad | None = None


class Measured(Model):
    """One workload and one group of arms timed in the same rounds. Every ratio uses samples of these rounds; ratios of
    several processes are pooled."""

    kind: Literal["measured"] = "measured"
    workload: Workload
    key: str = ""
    """Of the workload."""
    mode: str
    """cpu, cold, graph, warm, sustained, e2e, batch (isolated), or verify."""
    group: str = MAIN
    isolated: bool = False
    """Each arm ran in its own process."""
    isolation: Isolation | None = None
    """How they were kept apart, if so."""
    baseline: str
    margin: float
    """FASTER and SLOWER need more than this difference."""
    aa: Ratio | None = None
    """The baseline against itself."""
    aa_samples_ns: list[list[float]] | None = None
    protocol: ProtocolFacts = ProtocolFacts()
    telemetry: TelemetrySummary = TelemetrySummary()
    notes: list[Text] = []
    took_s: float | None = None
    timing: Timing = {}
    """Where the seconds of this workload went."""
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
        self.__dict__["results"] = without_false_ratios(self.results, self.baseline)
        return self

    @property
    def on_cpu(self) -> bool:
        """Whether a CPU was measured."""
        return self.mode == "cpu" or (self.isolation is not None and self.isolation.on_cpu)

    @property
    def of_cpu(self) -> HostLoad | None:
        """What others used of the CPU that was measured; None: unknown, or a GPU was measured."""
        return self.telemetry.host if self.on_cpu else None

    @property
    def is_contended(self) -> bool:
        """Whether others used the CPU that was measured. Other processes on a GPU are seen before a run: Preflight."""
        return self.of_cpu is not None and self.of_cpu.is_busy

    @property
    def place(self) -> tuple[str, str, str]:
        """Key of a measurement within its run."""
        return self.key, self.mode, self.group

    @property
    def base(self) -> ArmResult | None:
        """The baseline's result, if it has a time that stands."""
        mine = (arm for arm in self.results if arm.kernel == self.baseline)
        return next((arm for arm in mine if arm.p50_ms is not None and arm.status == Status.OK), None)


Arm = TypeVar("Arm", bound=ArmResult)


def without_false_ratios(results: list[Arm], baseline: str) -> list[Arm]:
    """The results of one measurement; without speedups if the baseline is not ok, or does other work: no ratio stands
    over it."""
    if all(arm.status == Status.OK and not arm.other_work for arm in results if arm.kernel == baseline):
        return results
    return [arm.model_copy(update=NO_SPEEDUP) for arm in results]


class Seen(Model):
    """Cross-check of one kernel on one workload."""

    key: str
    kernel: str
    ran: list[tuple[Text, int]] = []
    check: CrossCheck | None = None


class CrossChecked(Model):
    kind: Literal["crosschecked"] = "crosschecked"
    seen: list[Seen]
    timing: Timing = {}
    """Where the run's seconds outside its workloads went, the cross-check included."""

    def added_to(self, measurements: list[Measured]) -> Iterator[Measured]:
        """The measurements, with each result's cross-check added."""
        seen = {(one.key, one.kernel): one for one in self.seen}
        for measured in measurements:
            results = [_with_check(arm, seen.get((measured.key, arm.kernel))) for arm in measured.results]
            yield measured.model_copy(update={"results": results})


def _with_check(arm: ArmResult, seen: Seen | None) -> ArmResult:
    return arm.model_copy(update={"ran": seen.ran, "crosscheck": seen.check}) if seen else arm


class Examined(Model):
    """Why a kernel is slow on a workload: no measurement, and after all of them."""

    kind: Literal["examined"] = "examined"
    profile: Profile


class Finished(Model):
    kind: Literal["finished"] = "finished"
    state: Ending
    message: Text = ""
    log: Text = ""


class Tried(Model):
    """A trial of a search was screened."""

    kind: Literal["tried"] = "tried"
    trial: Trial


class Confirmed(Model):
    """A finalist of a search was measured again."""

    kind: Literal["confirmed"] = "confirmed"
    finalist: Finalist


Event = Started | Calibrated | Measured | CrossChecked | Examined | Tried | Confirmed | Finished


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
