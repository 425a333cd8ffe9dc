"""The events of a run: one model each, from the measuring process to the page.

A run emits Started, Calibrated where the device's ceilings are not known, Measured once for each group of each workload,
CrossChecked, and Finished. The site keys a measurement by (run, workload, mode, group, process).

Times end in their unit; a ratio has none. A field that is None was not measured. A field that this version does not know is
dropped, so that a newer agent can report to an older site.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from kernels.workload import Ceilings, Workload

VERSION: Literal[2] = 2
"""Of lines and exports. kernels/contract/upgrade.py reads version 1."""
MOST_RAN = 50
"""Kernels or operators of one call that are kept, the first."""


class Status(StrEnum):
    """How trying an arm ended."""

    OK = "ok"
    INCORRECT = "incorrect"
    OUT_OF_MEMORY = "out of memory"
    TIMED_OUT = "timed out"
    CRASHED = "crashed"
    IMPOSSIBLE = "impossible"
    """Its time is below what the device can do."""
    SUSPECT = "suspect"
    """Its time is not to be believed: it keeps results, works outside its call, changes global state, ..."""
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    """The kernel does not do this workload on this device. No failure."""


FAILURES = tuple(status for status in Status if status not in (Status.OK, Status.UNSUPPORTED))


class Verdict(StrEnum):
    """One word for a result that is ok."""

    BASELINE = "baseline"
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNDECIDED = "UNDECIDED"
    NEEDS_MORE = "needs more runs"
    UNPAIRED = "unpaired"
    """The protocol `fixed` measures one kernel after the other, so drift may be all there is."""
    CORRECT = "correct"
    """Checked, not timed."""
    NONE = ""


class Ending(StrEnum):
    """How a run ended, as its agent says."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


def _without_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("it has a NUL character")
    return text


Text = Annotated[str, AfterValidator(_without_nul)]


class Ratio(NamedTuple):
    """A ratio with its interval."""

    ratio: float
    low: float
    high: float


class Model(BaseModel):
    """Plain data that does not change once it is validated."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, populate_by_name=True)


# --- of one arm -------------------------------------------------------------------------------------------------------


class Correctness(Model):
    """What the checks of an arm found. The errors are of the worst check on normal inputs, beside those of eager PyTorch in the
    workload's dtype ("yard")."""

    correct: bool
    why: Text = ""
    seeds: int | None = None
    """Checks before timing, each on inputs of its own."""
    timed_calls_checked: int | None = None
    deterministic: bool | None = None
    inputs_changed: bool | None = None
    shared: bool | None = None
    """Calls share one output."""
    late: bool | None = None
    """The output changed after the call had returned."""
    constant: bool | None = None
    fits: bool | None = None
    """The right answer is far from the dtype's largest number."""
    unwritten: int | None = None
    nonfinite: int | None = None
    allclose: bool | None = Field(None, alias="allclose_1e-2")
    wrong_kind: Text | None = None
    distribution: str | None = None
    max_abs: float | None = None
    yard_abs: float | None = None
    rounding: float | None = None
    largest: float | None = None
    max_rel: float | None = None
    frobenius: float | None = None
    yard_frobenius: float | None = None
    row: float | None = None
    """Relative error of the worst row."""
    yard_row: float | None = None
    distributions: dict[str, Text] | None = None
    """Distribution of the inputs -> right, wrong: why, or not judged: why."""
    edges: dict[str, Text] | None = None
    """Size of a small relative -> the same; checked only where nothing is timed."""


class ColdCalls(Model):
    """Single calls on cold inputs, where the samples are graph replays."""

    n: int
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float


class Spread(Model):
    """Readings of one figure; the unit is in the name of the field that holds them."""

    median: float
    min: float
    max: float
    n: int | None = None


class CrossCheck(Model):
    """A second look in a process of its own, per call."""

    event_ns: float | None = None
    span_ns: float | None = None
    """From the start of the first kernel to the end of the last, by the profiler."""
    agrees: bool | None = None
    calls: int | None = None
    """Calls of the batch that `wall_ns` and `joules` are of."""
    wall_ns: float | None = None
    """By the parent's clock."""
    joules: float | None = None
    """Of the whole board."""
    host_bound: bool | None = None
    """The host may have launched more slowly than the device runs, so that `wall_ns` may be the host's."""


class ArmResult(Model):
    """One kernel on one workload. Latencies are of one call."""

    kernel: str
    status: Status = Status.OK
    why: Text = ""
    """Of the status, as a sentence."""
    log: Text = ""
    backend: str = ""
    sha256: str = ""
    """Of the kernel's file as it was run."""
    source: Text = ""
    compile_s: float | None = None
    """The first call."""
    peak_memory_bytes: int | None = None
    """Of one call, beyond its inputs."""
    registers: int | None = None
    """Of a thread, as Triton reports them: of the launched kernel with the most."""
    correctness: Correctness | None = None

    n: int | None = None
    """Timed calls; in mode graph, timed replays."""
    rounds: int | None = None
    left_after_round: int | None = None
    """It was far behind and left early."""
    mean_ms: float | None = None
    std_ms: float | None = None
    min_ms: float | None = None
    max_ms: float | None = None
    p5_ms: float | None = None
    p25_ms: float | None = None
    p50_ms: float | None = None
    p75_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    p50_low_ms: float | None = None
    p50_high_ms: float | None = None
    iqr_over_median: float | None = None
    outliers: int | None = None
    """Samples above p75 + 3 IQR; they are kept."""
    samples_ns: list[list[float]] | None = None
    """Round by round."""
    cold: ColdCalls | None = None
    sm_mhz: Spread | None = None
    """SM clock before each block, read in the stream."""

    speedup: float | None = None
    """Time of the baseline over this arm's."""
    speedup_low: float | None = None
    speedup_high: float | None = None
    paired: bool = True
    """The ratio is of pairs within rounds."""
    effective_sample_size: float | None = None
    """Of the paired log-ratios: fewer than `rounds` where rounds are autocorrelated."""

    tflops: float | None = None
    gb_per_s: float | None = None
    limit_ms: float | None = None
    """The speed of light."""
    limit_share: float | None = None
    """Of the speed of light reached, 0 to 1."""
    hint: str = ""
    ran: list[tuple[Text, int]] = []
    """(name, ns) of the kernels that one call ran, or on a CPU operators; from the cross-check."""
    crosscheck: CrossCheck | None = None

    @model_validator(mode="after")
    def figures_belong_together(self) -> ArmResult:
        times = (self.n, self.rounds, self.p50_ms, self.p50_low_ms, self.p50_high_ms)
        if any(value is None for value in times) and any(value is not None for value in times):
            raise ValueError(f"{self.kernel}: n, rounds, p50_ms and its interval come together or not at all")
        if self.samples_ns is not None and len(self.samples_ns) != self.rounds:
            raise ValueError(f"{self.kernel} has {self.rounds} rounds, and samples of {len(self.samples_ns)}")
        ends = (self.speedup_low, self.speedup_high)
        if (self.speedup is None) != (None in ends) or (self.speedup is None and ends != (None, None)):
            raise ValueError(f"{self.kernel}: a speedup and its interval come together or not at all")
        if self.speedup is not None:
            self._speedup_is_possible(*ends)
        return self

    def _speedup_is_possible(self, low: float | None, high: float | None) -> None:
        assert self.speedup is not None and low is not None and high is not None
        if self.status != Status.OK:
            raise ValueError(f"{self.kernel} is {self.status}, so it has no speedup")
        if self.p50_ms is None:
            raise ValueError(f"{self.kernel} has a speedup, but no time")
        if not 0 < low <= self.speedup <= high:
            raise ValueError(f"{self.kernel}: the speedup {self.speedup:g} is not in its interval, {low:g} to {high:g}")

    @property
    def ratio(self) -> Ratio | None:
        """The speedup with its interval."""
        if self.speedup is None or self.speedup_low is None or self.speedup_high is None:
            return None
        return Ratio(self.speedup, self.speedup_low, self.speedup_high)

    @property
    def single_calls(self) -> ColdCalls | ArmResult:
        """What has n and p90_ms of single calls: the cold pass, where the samples are graph replays."""
        return self.cold or self


# --- the events -------------------------------------------------------------------------------------------------------


class Preflight(Model):
    """The device before the run."""

    others: list[int] = []
    """Foreign processes on it."""
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
    """How the protocol went; None where nothing was timed."""

    paired: bool | None = None
    sets: int | None = None
    """Input sets that calls rotate over."""
    covered: bool | None = None
    """The input sets are larger than the cache together."""
    flushed: bool | None = None
    """The L2 cache was emptied before calls."""
    rest: float | None = None
    """Before each block the device rested so many times as long as the block works."""
    rounds: int | None = None
    orders: list[list[str]] | None = None
    """Of the arms, round by round."""
    repeated: int | None = None
    """Rounds that were measured again because heat slowed the device down."""
    rounds_s: float | None = None


class TelemetrySummary(Model):
    """What NVML said meanwhile."""

    samples: int = 0
    sm_mhz: Spread | None = None
    power_w: Spread | None = None
    temperature_c: Spread | None = None
    throttled: list[str] = []


class Measured(Model):
    """One workload, one group of arms that were timed in the same rounds: every ratio is of samples of one process."""

    kind: Literal["measured"] = "measured"
    workload: Workload
    key: str = ""
    """Of the workload."""
    mode: str
    """cpu, cold, graph, warm, sustained, e2e, or verify."""
    group: str = "main"
    process: int = Field(0, ge=0)
    """Index of the measuring process, where a run measures a workload in several."""
    isolated: bool = False
    """Each arm had a process of its own."""
    baseline: str
    margin: float
    """A difference below it is SAME."""
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
        """What tells the measurements of one run apart."""
        return self.key, self.mode, self.group, self.process

    @property
    def base(self) -> ArmResult | None:
        """The baseline's result, if it has a time."""
        return next((arm for arm in self.results if arm.kernel == self.baseline and arm.p50_ms is not None), None)


class Seen(Model):
    """What the cross-check saw of one kernel on one workload."""

    key: str
    kernel: str
    ran: list[tuple[Text, int]] = []
    check: CrossCheck | None = None


class CrossChecked(Model):
    kind: Literal["crosschecked"] = "crosschecked"
    seen: list[Seen]

    def added_to(self, measurements: list[Measured]) -> Iterator[Measured]:
        """The measurements, each result with what was seen of it."""
        found = {(one.key, one.kernel): one for one in self.seen}
        for measured in measurements:
            results = [_with_look(arm, found.get((measured.key, arm.kernel))) for arm in measured.results]
            yield measured.model_copy(update={"results": results})


def _with_look(arm: ArmResult, seen: Seen | None) -> ArmResult:
    return arm.model_copy(update={"ran": seen.ran, "crosscheck": seen.check}) if seen else arm


class Finished(Model):
    kind: Literal["finished"] = "finished"
    state: Ending
    message: Text = ""
    log: Text = ""


Event = Started | Calibrated | Measured | CrossChecked | Finished


class Line(Model):
    """An event as an agent's journal holds it and sends it."""

    version: Literal[2] = VERSION
    run: int
    attempt: int
    seq: int
    """1 for the first of the attempt."""
    at: AwareDatetime
    event: Annotated[Event, Field(discriminator="kind")]


class SentLine(NamedTuple):
    """A line on its way from an agent to the recorder: who it is of, and its JSON as the journal has it."""

    run: int
    attempt: int
    seq: int
    body: str
    """A Line."""
