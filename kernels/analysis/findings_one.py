"""Findings of one result: whether its figures are possible, and belong to the same work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernels.analysis.claims import AGREES, Claim, Judgement, Word, flop, judge, rounding
from kernels.analysis.memory import size
from kernels.analysis.peaks import Peak, Reached
from kernels.analysis.roofline import LOW_SHARE, speed_of_light_ms
from kernels.workload import Workload


class Kind(StrEnum):
    """What a finding is about; the order is that of a report."""

    IMPOSSIBLE = "impossible"
    CONTRADICTORY = "not consistent with its sizes"
    """Figures of one result that do not belong to the same work."""
    ABOVE = "above everything measured"
    SUSPECT = "suspect"
    INCORRECT = "incorrect"
    BROKEN = "failed"
    """It crashed, timed out, ran out of memory, or raised."""
    FACTORS = "factors and times disagree"
    SLOW = "far slower than the baseline"
    LOW = "far from the limit"
    CAUSE = "root-cause hypothesis"
    """A profile's diagnosis."""
    GROWS = "grows with the work"
    LATENCY = "latency-bound"
    NOISE = "noise"
    CONTENDED = "contended"
    CLOCK = "clock drop"


DOUBTS = (Kind.IMPOSSIBLE, Kind.CONTRADICTORY, Kind.ABOVE, Kind.SUSPECT, Kind.INCORRECT, Kind.BROKEN, Kind.FACTORS, Kind.NOISE,
          Kind.CONTENDED, Kind.CLOCK)  # fmt: skip


@dataclass(frozen=True)
class Timed:
    """One kernel's time on one workload, and what is claimed beside it. None: not said."""

    workload: Workload
    kernel: str
    ms: float | None
    """Time of one call."""
    peak: Peak | None = None
    """The GPU's model, if it is known."""
    gpu: str = ""
    """The GPU as it is named: times of two GPUs are not compared."""
    method: str = ""
    """What timed it, and which statistic it is: times of two methods are not compared."""
    tflops: float | None = None
    gb_per_s: float | None = None
    speedup: float | None = None
    """Over the baseline, as claimed."""
    slowdown: float | None = None
    """The claimed factor by which it is slower than the baseline."""
    correct: bool | None = None
    assumed_dtype: bool = False
    """The dtype was not said: nothing is concluded from the bytes of an element."""
    link: str = ""
    """Address of the result."""
    low: float | None = None
    """The interval of a measured time; None: a claim has none."""
    high: float | None = None
    measurement: str = ""
    """In which measurement it was timed; a ratio never joins two. Of claims of one file: empty."""

    @property
    def spread(self) -> float:
        """Half the interval's length, in logarithms; 0 without one."""
        return math.log(self.high / self.low) / 2 if self.low and self.high else 0.0

    @property
    def where(self) -> tuple[str, str, str]:
        """Times are compared only where this is equal."""
        return self.workload.operation, self.gpu, self.method


@dataclass(frozen=True)
class Finding:
    kind: Kind
    sentence: str
    arithmetic: tuple[str, ...] = ()
    """One line for each result or comparison that it rests on."""
    of: tuple[Timed, ...] = ()
    """The results that it rests on."""

    @property
    def doubts(self) -> bool:
        """Whether it says that a figure cannot be true, or does not count."""
        return self.kind in DOUBTS


# --- of one result ----------------------------------------------------------------------------------------------------

KINDS = {Word.IMPOSSIBLE: Kind.IMPOSSIBLE, Word.CONTRADICTORY: Kind.CONTRADICTORY, Word.ABOVE: Kind.ABOVE}


def judged(one: Timed, measured: Sequence[Reached] = (), bandwidths: Sequence[Reached] = ()) -> Judgement | None:
    """The result as a claim, compared with the limits of its GPU. None: without a known GPU, or without a figure."""
    if one.peak is None or (one.ms is None and one.tflops is None):
        return None
    return judge(Claim(one.workload, one.peak, one.ms, one.tflops), measured, bandwidths)


def of_one(one: Timed, measured: Sequence[Reached] = (), bandwidths: Sequence[Reached] = ()) -> Iterator[Finding]:
    """What one result says by itself."""
    name = f"{one.kernel} on {one.workload.label}"
    found = judged(one, measured, bandwidths)
    if found and found.word in KINDS:
        steps = tuple(f"{step.what}: {step.arithmetic} = {step.result}" for step in found.steps if step.arithmetic)
        yield Finding(KINDS[found.word], f"{name}: {found.why}.", steps, (one,))
    elif why := rate_without_its_work(one):
        yield Finding(Kind.CONTRADICTORY, f"{name}: {why}.", (), (one,))
    if why := bandwidth_without_its_bytes(one):
        yield Finding(Kind.CONTRADICTORY, f"{name}: {why}.", (_bytes(one.workload),), (one,))
    if one.correct is False:
        yield Finding(Kind.INCORRECT, f"{name} is incorrect by its own report: its time does not count.", (), (one,))


def rate_without_its_work(one: Timed) -> str:
    """Why a claimed TFLOP/s does not follow from time and sizes, whatever the GPU; empty if it does."""
    if not one.tflops or not one.ms:
        return ""
    work, dense = one.workload.problem.flops(), one.workload.problem.dense_flops()
    near = max(AGREES, rounding(one.tflops) + rounding(one.ms))
    said = one.tflops * one.ms * 1e9
    if any(abs(said / count - 1) <= near for count in (work, dense)):
        return ""
    return (
        f"{one.tflops:.4g} TFLOP/s x {one.ms:.4g} ms = {flop(said)}, and the workload has {flop(work)}: in that time "
        f"its rate would be {work / one.ms / 1e9:.4g} TFLOP/s"
    )


def bandwidth_without_its_bytes(one: Timed) -> str:
    """Why a claimed GB/s is too low for time and sizes: every input is read once and every output written once.

    More bytes than these are no contradiction: a kernel may read twice.
    """
    if not one.gb_per_s or not one.ms:
        return ""
    least, said = one.workload.problem.tensor_bytes, one.gb_per_s * one.ms * 1e6
    if one.assumed_dtype:
        least = least // one.workload.problem.element_bytes * 2  # no dtype of this site is smaller
    near = max(AGREES, rounding(one.gb_per_s) + rounding(one.ms))
    if said >= least * (1 - near):
        return ""
    return (
        f"{one.gb_per_s:.4g} GB/s x {one.ms:.4g} ms = {size(said)}, and the workload moves at least {size(least)}: in that "
        f"time its rate would be at least {least / one.ms / 1e6:.4g} GB/s"
    )


def _bytes(workload: Workload) -> str:
    read, written = workload.problem.bytes_moved()
    return f"each input once, each output once, in {workload.dtype}: {size(read)} + {size(written)} = {size(read + written)}"


def share_of_light(one: Timed) -> float | None:
    """Share of the speed of light that a time reaches, 0 to 1; None without a known GPU."""
    limit = speed_of_light_ms(one.workload.problem, one.peak)
    return limit / one.ms if limit and one.ms else None


def is_low(one: Timed) -> bool:
    """Whether it reaches less than LOW_SHARE of the speed of light."""
    share = share_of_light(one)
    return share is not None and share < LOW_SHARE
