"""A rate or time that somebody claims for a workload on a GPU model: is it possible, and has anybody reached as much?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from kernels.analysis.memory import size
from kernels.analysis.peaks import Peak, Reached
from kernels.analysis.roofline import speed_of_light_ms
from kernels.workload import Workload

AGREES = 0.02
"""A claimed rate and time agree within this, or within their rounding if that is coarser."""


class Word(StrEnum):
    """The verdict on a claim."""

    IMPOSSIBLE = "impossible"
    CONTRADICTORY = "not consistent with its sizes"
    """Its time and its TFLOP/s do not belong to the same work."""
    ABOVE = "above everything measured"
    CACHED = "impossible on cold inputs"
    """Only inputs that are in the cache already are read so fast."""
    PLAUSIBLE = "plausible"


@dataclass(frozen=True)
class Claim:
    """What is claimed: a time, a rate, or both."""

    workload: Workload
    peak: Peak
    ms: float | None = None
    """Time of one call."""
    tflops: float | None = None


@dataclass(frozen=True)
class Step:
    """One line of the arithmetic."""

    what: str
    arithmetic: str
    result: str
    source: str = ""
    link: str = ""


@dataclass(frozen=True)
class Judgement:
    word: Word
    why: str
    """The reason, as a sentence."""
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bars: list[tuple[str, float]] = field(default_factory=list)
    """(name, rate) of the claim and its limits, to be drawn: TFLOP/s, or GB/s of an operation that moves bytes."""
    unit: str = "TFLOP/s"
    """Unit of the bars, and what they count."""

    @property
    def stands(self) -> bool:
        return self.word == Word.PLAUSIBLE


def highest(*known: Reached | None) -> Reached | None:
    """The highest of what is known: of the table, and of what was measured here."""
    return max((one for one in known if one), key=lambda one: one.rate, default=None)


def judge(claim: Claim, measured: Iterable[Reached] = (), bandwidths: Iterable[Reached] = ()) -> Judgement:
    """Judges a claim.

    measured: TFLOP/s of this dtype that were measured on this model, beside those of the table; bandwidths: GB/s.
    Raises ValueError if nothing is claimed.
    """
    return _Case(claim, tuple(measured), tuple(bandwidths)).judgement()


class _Case:
    def __init__(self, claim: Claim, measured: tuple[Reached, ...], bandwidths: tuple[Reached, ...]) -> None:
        if claim.ms is None and claim.tflops is None:
            raise ValueError("give a time or a rate")
        self.claim, self.problem, self.peak = claim, claim.workload.problem, claim.peak
        self.flops, self.dense = self.problem.flops(), self.problem.dense_flops()
        self.ms: float = claim.ms or self.flops / (claim.tflops or 1) / 1e9
        self.rate = self.flops / self.ms / 1e9
        self.moved = self.problem.tensor_bytes / self.ms / 1e6
        self.light = self.peak.light(self.problem.dtype)
        self.reached = highest(self.peak.reached_tflops(self.problem.dtype), *measured)
        self.read = highest(self.peak.reached.get("memory"), *bandwidths)

    @property
    def masked(self) -> bool:
        return self.dense != self.flops

    def judgement(self) -> Judgement:
        word, why = self._verdict()
        return Judgement(word, why, self._steps(), self._notes(), self._bars(), self._unit())

    def _verdict(self) -> tuple[Word, str]:
        model, light = self.peak.model, self.light
        if self._contradicts():
            ms, tflops = self.claim.ms or 0, self.claim.tflops or 0
            return Word.CONTRADICTORY, (
                f"{tflops:.4g} TFLOP/s x {span(ms)} = {flop(tflops * ms * 1e9)}, but this workload has "
                f"{flop(self.flops)}{f' ({flop(self.dense)} with masked work)' if self.masked else ''}: "
                f"{span(ms)} means {self.rate:.4g} TFLOP/s"
            )
        if self.rate > light.tflops:
            return Word.IMPOSSIBLE, (
                f"{span(self.ms)} would be {self.rate:.4g} TFLOP/s; {model} cannot exceed {light.tflops:.4g} "
                f"TFLOP/s ({light.arithmetic})"
            )
        if self.reached and self.rate > self.reached.rate:
            return Word.ABOVE, (
                f"{self.rate:.4g} TFLOP/s is above everything measured on {_a(model)} so far: {self.reached.rate:.4g} "
                "TFLOP/s"
            )
        if self.moved > self.peak.gb_per_s:
            return Word.CACHED, (
                f"{self.moved:.4g} GB/s is more than the memory of {model} gives ({self.peak.gb_per_s:g} GB/s); only "
                "inputs in the cache are read so fast"
            )
        if self.read and self.moved > self.read.rate:
            return Word.ABOVE, (
                f"{self.moved:.4g} GB/s is above everything measured on the memory of {_a(model)} so far: "
                f"{self.read.rate:.4g} GB/s"
            )
        return Word.PLAUSIBLE, f"{self._share():.1%} of the speed of light ({span(self._limit_ms())})"

    def _contradicts(self) -> bool:
        """Whether time and rate are both given and disagree, masked work counted or not."""
        if self.claim.ms is None or self.claim.tflops is None:
            return False
        said = self.claim.tflops * self.claim.ms * 1e9
        near = max(AGREES, rounding(self.claim.tflops) + rounding(self.claim.ms))
        return all(abs(said / work - 1) > near for work in (self.flops, self.dense))

    def _limit_ms(self) -> float:
        limit = speed_of_light_ms(self.problem, self.peak)
        assert limit is not None
        return limit

    def _share(self) -> float:
        return self._limit_ms() / self.ms

    def _steps(self) -> list[Step]:
        symbols, numbers = self.problem.flops_formula()
        unmasked = ", unmasked work" if self.masked else ""
        steps = [Step(f"work{unmasked}", f"{symbols} = {numbers}", flop(self.flops))]
        if self.claim.ms is None:
            steps.append(Step("time", f"{flop(self.flops)} / {self.claim.tflops:.4g} TFLOP/s", span(self.ms)))
        steps.append(Step(f"rate{unmasked}", f"{flop(self.flops)} / {span(self.ms)}", f"{self.rate:.4g} TFLOP/s"))
        if self.masked:
            rate = self.dense / self.ms / 1e9
            steps.append(Step("rate, dense-equivalent", f"{flop(self.dense)} / {span(self.ms)}", f"{rate:.4g} TFLOP/s"))
        light, sheet = self.light, self.peak.tflops(self.problem.dtype)
        steps.append(Step("speed of light", light.arithmetic, f"{light.tflops:.4g} TFLOP/s", self.peak.clock_source))
        steps.append(Step("datasheet", self.peak.model, f"{sheet:g} TFLOP/s"))
        if self.reached:
            where, most = f"on {_a(self.peak.model)}", f"{self.reached.rate:.4g} TFLOP/s"
            steps.append(Step("highest measured so far", where, most, self.reached.source, self.reached.link))
        return [*steps, *self._memory()]

    def _unit(self) -> str:
        unit = self.problem.unit
        return f"{unit} of unmasked work" if self.masked and unit == "TFLOP/s" else unit

    def _bars(self) -> list[tuple[str, float]]:
        if self.problem.unit == "GB/s":
            claimed, reached, sheet, light = self.moved, self.read, self.peak.gb_per_s, None
        else:
            claimed, reached = self.rate, self.reached
            sheet, light = self.peak.tflops(self.problem.dtype), self.light.tflops
        rows = [("this claim", claimed), ("highest measured", reached and reached.rate)]
        rows += [("datasheet", sheet), ("speed of light", light)]
        return [(name, rate) for name, rate in rows if rate]

    def _memory(self) -> list[Step]:
        read, written = self.problem.bytes_moved()
        both = f"{size(read)} read + {size(written)} written"
        steps = [
            Step("bytes, each once", both, size(read + written)),
            Step("bandwidth", f"{size(read + written)} / {span(self.ms)}", f"{self.moved:.4g} GB/s"),
            Step("bandwidth of the datasheet", self.peak.model, f"{self.peak.gb_per_s:g} GB/s"),
        ]
        if self.read:
            steps.append(
                Step("highest read so far", "", f"{self.read.rate:.4g} GB/s", self.read.source, self.read.link)
            )
        least = (
            f"the longer of {flop(self.flops)} / {self.light.tflops:.4g} TFLOP/s and "
            f"{size(read + written)} / {self.peak.gb_per_s:g} GB/s"
        )
        return [*steps, Step("least time", least, span(self._limit_ms()))]

    def _notes(self) -> list[str]:
        notes = []
        claimed = self.claim.tflops
        if (
            self.masked
            and claimed
            and self.claim.ms
            and abs(claimed / self.rate - 1) > AGREES
            and not self._contradicts()
        ):
            notes.append("Its TFLOP/s count masked work, too. The verdict is on the unmasked work.")
        elif self.masked and claimed and not self.claim.ms:
            notes.append(
                f"TFLOP/s are taken as unmasked work. If the claim counts masked work, too, it is "
                f"{claimed * self.flops / self.dense:.4g} TFLOP/s of unmasked work."
            )
        if self.reached is None:
            notes.append(f"No measured maximum is known for {self.problem.dtype} on {_a(self.peak.model)}.")
        return notes


def _a(model: str) -> str:
    """The model with its article: an H100, a B200, an RTX 4090."""
    return f"{'an' if model[0] in 'AHLR' else 'a'} {model}"


def rounding(value: float) -> float:
    """Relative error that the last given digit allows: 0.08 may be anything from 0.075 to 0.085."""
    digits = f"{value:.15g}"
    decimals = len(digits.partition(".")[2]) if "e" not in digits else 15
    return 0.5 * 10**-decimals / value


def span(ms: float) -> str:
    """A time in the unit that suits it: 2.245 µs, 0.543 ms, 1.5 s."""
    factor, unit = (1e3, "µs") if ms < 0.1 else (1, "ms") if ms < 1000 else (1e-3, "s")
    return f"{ms * factor:.4g} {unit}"


def flop(count: float) -> str:
    """Work with its unit: 13.19 TFLOP."""
    for unit, flops in (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)):
        if count >= flops:
            return f"{count / flops:.4g} {unit}"
    return f"{count:.4g} FLOP"
