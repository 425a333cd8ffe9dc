"""The result of one arm: one kernel on one workload. Times end in their unit; a ratio has none.

A field that is None was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

MOST_KERNELS_RAN = 50
"""Kernels or operators kept of one call: the first ones."""


class Status(StrEnum):
    """How an arm ended."""

    OK = "ok"
    INCORRECT = "incorrect"
    OUT_OF_MEMORY = "out of memory"
    TIMED_OUT = "timed out"
    CRASHED = "crashed"
    IMPOSSIBLE = "impossible"
    """Its time is below the device's limit."""
    SUSPECT = "suspect"
    """Its time is not credible: it caches, works outside its call, or changes global state."""
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    """The kernel does not support this workload on this device. Not a failure."""


FAILURES = tuple(status for status in Status if status not in (Status.OK, Status.UNSUPPORTED))
MOST_SPEEDUP = 1e100
"""A larger end of an interval, or one below its inverse, comes from no measurement, and changes of it are not finite."""


class Verdict(StrEnum):
    """One word for a result whose status is ok."""

    BASELINE = "baseline"
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNDECIDED = "UNDECIDED"
    NEEDS_MORE = "needs more rounds"
    UNKNOWN = "correctness unknown"
    """There is no reference: it has a ratio, which counts nowhere."""
    UNPAIRED = "unpaired"
    """The protocol `fixed` measures one kernel after the other: drift could explain the difference."""
    OTHER_WORK = "not the same work"
    """The kernel computes something else, for comparison: it has a ratio, which counts nowhere."""
    TOO_SHORT = "too short to tell apart here"
    """An isolated measurement, whose batches are too short for the parent's clock."""
    CORRECT = "correct"
    """Checked, not timed."""
    NONE = ""


COUNT_NOWHERE = (Verdict.UNKNOWN, Verdict.OTHER_WORK)
"""Verdicts of results whose ratios no chart, mean, tier or headline includes."""


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


def assignments(environment: Mapping[str, str]) -> str:
    """Environment variables in a line, by name: "NAME=1, OTHER=2"."""
    return ", ".join(f"{name}={value}" for name, value in sorted(environment.items()))


class Model(BaseModel):
    """Immutable, validated data."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, populate_by_name=True)


class Correctness(Model):
    """Result of an arm's checks. The errors are those of the worst check on normal inputs. "yard": the error of eager
    PyTorch in the workload's dtype."""

    correct: bool | None = None
    """None: there is no reference."""
    why: Text = ""
    seeds: int | None = None
    """Checks before timing, each on its own inputs."""
    timed_calls_checked: int | None = None
    deterministic: bool | None = None
    inputs_changed: bool | None = None
    shared: bool | None = None
    """Calls share one output."""
    late: bool | None = None
    """The output changed after the call returned."""
    constant: bool | None = None
    fits: bool | None = None
    """The correct values are far from the dtype's largest number."""
    unwritten: int | None = None
    nonfinite: int | None = None
    mismatches: int | None = None
    """Elements of an integer or bool output that differ. yard_mismatches: those of eager PyTorch."""
    yard_mismatches: int | None = None
    elements: int | None = None
    """Elements compared, of an integer or bool output."""
    undecided: int | None = None
    """Those of them that the reference itself cannot decide: rounding does."""
    allclose: bool | None = Field(None, alias="allclose_1e-2")
    wrong_kind: Text | None = None
    distribution: str | None = None
    max_abs: float | None = None
    yard_abs: float | None = None
    rounding: float | None = None
    largest: float | None = None
    frobenius: float | None = None
    yard_frobenius: float | None = None
    row: float | None = None
    """Relative error of the worst row."""
    yard_row: float | None = None
    column: float | None = None
    """Relative error of the worst column."""
    yard_column: float | None = None
    slope: float | None = None
    """Systematic relative error: the output is this much too large on average."""
    slope_error: float | None = None
    """Its standard error."""
    yard_slope: float | None = None
    slope_allowed: float | None = None
    """What rounding an input times a constant, or sums, may cost; standard errors are allowed in addition."""
    precision: Text | None = None
    """Of float32: what kind of products its error shows."""
    distributions: dict[str, Text] | None = None
    """Distribution of the inputs -> "right", "wrong: why" or "not judged: why"."""
    edges: dict[str, Text] | None = None
    """Sizes of a small related workload -> the same. Only in runs that check without timing, and of a problem's own tests."""
    own_check: Text = ""
    """What the check that came with a problem says: a claim."""


class ColdCalls(Model):
    """Single calls on cold inputs, measured beside graph replays."""

    n: int
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float


class Spread(Model):
    """Readings of one figure. The name of the field that holds them gives the unit."""

    median: float
    min: float
    max: float
    n: int | None = None


class CrossCheck(Model):
    """Cross-check in a separate process; per call."""

    event_ns: float | None = None
    span_ns: float | None = None
    """Profiler span: from the start of the first kernel to the end of the last."""
    agrees: bool | None = None
    calls: int | None = None
    """Calls in the batch of `wall_ns` and `joules`."""
    wall_ns: float | None = None
    """Measured by the parent's clock."""
    joules: float | None = None
    """Energy of the whole board."""
    host_bound: bool | None = None
    """The host may launch more slowly than the device runs: then `wall_ns` may be host time."""

    @property
    def gpu_busy(self) -> float | None:
        """Share of a call back to back in which the device works: `span_ns` / `wall_ns`, at most 1."""
        return min(1.0, self.span_ns / self.wall_ns) if self.span_ns and self.wall_ns else None


NO_SPEEDUP: dict[str, Any] = dict.fromkeys(("speedup", "speedup_low", "speedup_high", "effective_sample_size"))
"""Fields of an ArmResult without a speedup."""


class ArmResult(Model):
    """One kernel on one workload. Latencies are per call."""

    kernel: str
    status: Status = Status.OK
    why: Text = ""
    """Reason for the status, as a sentence."""
    log: Text = ""
    backend: str = ""
    sha256: str = ""
    """Of the kernel's file as executed."""
    source: Text = ""
    other_work: Text = ""
    """What the kernel does instead of the operation's work, as a clause. Its values are then not checked, and it has no
    rates. Empty: it does that work."""
    environment: dict[str, Text] = {}
    """Environment variables of its process that a kernel declares; the baseline beside that kernel has them, too."""
    settings: Text = ""
    """Settings of a kernel that can be tuned, "rows=2+warps=4". Empty: its own choice."""
    tuned: Text = ""
    """Where they come from, if from its table: "tuned for NVIDIA H200 on 2026-11-23"."""
    compile_s: float | None = None
    """Time of the first call."""
    peak_memory_bytes: int | None = None
    """Peak during one call, above its inputs: its outputs, and what it allocates itself."""
    registers: int | None = None
    """Registers of a thread. This and what follows, up to `occupancy`, is known of kernels that Triton or NVRTC compiled; if a
    call launches several, of the one with the most registers."""
    local_bytes: int | None = None
    """Local memory of a thread: spilled registers, and arrays that do not fit into registers."""
    static_shared_bytes: int | None = None
    """Shared memory of a block that the source declares."""
    dynamic_shared_bytes: int | None = None
    """Shared memory of a block that the launch asks for."""
    grid: Text = ""
    """Blocks of the launch: "128 x 16 x 1"."""
    block: Text = ""
    """Threads of a block, likewise."""
    occupancy: float | None = None
    """Theoretical occupancy, 0 to 1: kernels/analysis/occupancy.py."""
    correctness: Correctness | None = None

    n: int | None = None
    """Timed calls; in mode graph, timed replays; in mode batch, batches."""
    rounds: int | None = None
    left_after_round: int | None = None
    """Round after which it was dropped (far behind)."""
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
    """One list per round."""
    cold: ColdCalls | None = None
    sm_mhz: Spread | None = None
    """SM clock before each block, read in the stream."""

    speedup: float | None = None
    """Baseline time / this arm's time."""
    speedup_low: float | None = None
    speedup_high: float | None = None
    rounds_half_width: float | None = None
    """Half-width of the interval from the rounds alone, on the log scale."""
    process_half_width: float | None = None
    """The same from the process alone; all in quadrature give the interval. None: the interval leaves the process out
    (older results, and the protocol `fixed`)."""
    host_half_width: float | None = None
    """The same from what the host adds to batches. None: not isolated, or an older result."""
    by_process: list[Ratio] | None = None
    """The ratio of each process with its interval from rounds, if there are several."""
    paired: bool = True
    """Whether the ratio comes from pairs within rounds."""
    effective_sample_size: float | None = None
    """Effective sample size of the paired log-ratios: below `rounds` if rounds are autocorrelated."""

    tflops: float | None = None
    """Counts unmasked work only."""
    gb_per_s: float | None = None
    limit_ms: float | None = None
    """Speed of light: the least time that the device needs for the work."""
    limit_share: float | None = None
    """Share of the speed of light reached, 0 to 1."""
    hint: str = ""
    ran: list[tuple[Text, int]] = []
    """(name, ns) of the kernels (on a CPU: operators) of one call, from the cross-check."""
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
        if low < 1 / MOST_SPEEDUP or high > MOST_SPEEDUP:
            raise ValueError(f"{self.kernel}: no measurement has a speedup of {low:g} to {high:g}")

    @property
    def ratio(self) -> Ratio | None:
        """The speedup with its interval."""
        if self.speedup is None or self.speedup_low is None or self.speedup_high is None:
            return None
        return Ratio(self.speedup, self.speedup_low, self.speedup_high)

    @property
    def is_checked(self) -> bool:
        """Whether a reference found it correct."""
        return self.correctness is not None and self.correctness.correct is True

    @property
    def single_calls(self) -> ColdCalls | ArmResult:
        """The source of n and p90_ms of single calls: the cold pass, if the samples are graph replays."""
        return self.cold or self
