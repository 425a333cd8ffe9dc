"""How a kernel stands against its baseline over several workloads: counts, a geometric mean with its interval, the
minimum, what was left out, and the sentence that every page, list and file shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from kernels.analysis.statistics import factor_for_many, geometric_mean
from kernels.analysis.verdicts import is_noisy
from kernels.contract.arm_result import Ratio, Status, Verdict

WORDS = (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.UNDECIDED)
MIXED = "mixed"
TOO_NOISY = "too noisy"
"""Left out of means: A/A was too far off on this workload."""
CONTENDED = "contended"
"""Left out of means: other processes used the device."""
REASONS: dict[Verdict | Status, str] = {
    Verdict.NEEDS_MORE: "needs more rounds",
    Verdict.UNPAIRED: "not paired",
    Verdict.NONE: "without a speedup",
    Verdict.CORRECT: "not timed",
}
"""Why a verdict leaves a result out; a status says it itself."""


class Compared(NamedTuple):
    """One result of a kernel that is not the baseline."""

    place: str
    """Its workload, as any text that is the same for the same workload."""
    kernel: str
    baseline: str
    verdict: Verdict | Status
    ratio: Ratio | None
    """The speedup, with an interval that holds in 99% of all cases."""
    margin: float
    rounds: float
    """The rounds that count for the interval."""
    is_contended: bool = False

    @property
    def why_left_out(self) -> str:
        """Why no mean includes it; empty if means do."""
        if self.is_contended and self.ratio:
            return CONTENDED
        if self.verdict in WORDS and self.ratio:
            return TOO_NOISY if is_noisy(self.margin) else ""
        return REASONS.get(self.verdict, str(self.verdict))


@dataclass(frozen=True)
class Standing:
    """One kernel against its baseline."""

    kernel: str
    baseline: str
    counts: dict[str, int]
    """faster, slower, same, undecided -> workloads, without those left out."""
    mean: Ratio | None = None
    """Geometric mean over the workloads that are not left out, UNDECIDED ones included."""
    least: float | None = None
    """The smallest of its speedups."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Reason -> workloads that no figure includes."""

    @property
    def without_mean(self) -> Standing:
        """Its counts alone: of results that have no common mean."""
        return replace(self, mean=None, least=None)

    @property
    def n(self) -> int:
        """Workloads in the mean."""
        return sum(self.counts.values())

    @property
    def was_compared(self) -> bool:
        """Whether it has a speedup anywhere, even if no figure includes it."""
        return bool(
            self.n
            or {TOO_NOISY, CONTENDED, REASONS[Verdict.NEEDS_MORE], REASONS[Verdict.UNPAIRED]} & set(self.left_out)
        )

    @property
    def of(self) -> int:
        """Workloads tried."""
        return self.n + sum(self.left_out.values())

    @property
    def word(self) -> str:
        """faster, slower, mixed (both), same (everywhere), undecided; empty if nothing was compared."""
        faster, slower = self.counts["faster"], self.counts["slower"]
        if faster and slower:
            return MIXED
        if faster or slower:
            return "faster" if faster else "slower"
        if not self.n:
            return ""
        return "same" if self.counts["same"] == self.n else "undecided"

    @property
    def phrase(self) -> str:
        """The word in a clause: "faster than sdpa on 6 of 8 workloads"."""
        if self.word in ("faster", "slower"):
            where = f" on {self.counts[self.word]} of {self.of} workloads" if self.of > 1 else ""
            return f"{self.word} than {self.baseline}{where}"
        return {
            MIXED: f"{self._mixed} of {self.of} workloads",
            "same": f"as fast as {self.baseline}",
            "undecided": f"not clearly different from {self.baseline}",
        }.get(self.word, self._without_figures)

    @property
    def _without_figures(self) -> str:
        if not self.was_compared:
            return f"not compared with {self.baseline}"
        why = ", ".join(f"{reason} on {count}" for reason, count in self.left_out.items())
        return f"no verdict against {self.baseline}: {why} of {self.of}"

    @property
    def _mixed(self) -> str:
        """ "faster than sdpa on 6, slower on 2": what is more frequent first."""
        first, second = sorted(("faster", "slower"), key=lambda word: -self.counts[word])
        return f"{first} than {self.baseline} on {self.counts[first]}, {second} on {self.counts[second]}"

    @property
    def sentence(self) -> str:
        """ "faster on 6, slower on 2, 1.12x over 8 (1.11 to 1.13), least 0.82x", without a full stop."""
        words = [f"{word} on {count}" for word, count in self.counts.items() if count]
        return ", ".join(filter(None, [*([self.word] if self.n == self.of == 1 else words), self.figures]))

    @property
    def rest(self) -> str:
        """What the sentence adds to the phrase."""
        return self._rest(self._figures("geometric mean ", " workloads"))

    @property
    def brief(self) -> str:
        """The same where there is little room."""
        return self._rest(self.figures)

    def _rest(self, figures: str) -> str:
        named = {"faster", "slower"} if self.word == MIXED else {self.word}
        others = [f"{word} on {count}" for word, count in self.counts.items() if count and word not in named]
        if self.word == "undecided" and others:
            return self.sentence  # the phrase has no number
        return ", ".join(filter(None, [*others, figures]))

    @property
    def figures(self) -> str:
        """The sentence after its words: "1.12x over 8 (1.11 to 1.13), least 0.82x; 2 left out: too noisy"."""
        return self._figures()

    def _figures(self, what: str = "", of: str = "") -> str:
        said = ""
        if self.mean and self.least is not None:
            ratio, low, high, least = in_digits(*self.mean, self.least)
            said = f"{what}{ratio}x over {self.n}{of} ({low} to {high}), least {least}x"
            if self.n == 1:
                said = f"{ratio}x ({low} to {high})"
        return "; ".join(filter(None, [said, self._left_out()]))

    def _left_out(self) -> str:
        if not self.left_out:
            return ""
        if self.of == 1:
            return next(iter(self.left_out))
        reasons = ", ".join(f"{reason} on {count}" for reason, count in self.left_out.items())
        if not self.n:
            return reasons
        only = next(iter(self.left_out)) if len(self.left_out) == 1 else reasons
        return f"{sum(self.left_out.values())} left out: {only}"


def in_digits(ratio: float, low: float, high: float, *others: float, least: int = 2) -> list[str]:
    """A ratio, its interval and other ratios with the same decimals: `least`, more where the ends of the interval are
    closer or the ratio is small."""
    apart = -math.floor(math.log10((high - low) / 2)) if high > low else 0
    small = 2 - math.floor(math.log10(ratio)) if ratio < 0.1 else 0
    decimals = max(least, min(3, apart), min(6, small))
    return [f"{figure:.{decimals}f}" for figure in (ratio, low, high, *others)]


def standing_of(results: Sequence[Compared]) -> Standing:
    """The standing of one kernel, from its results."""
    inside = [one for one in results if not one.why_left_out]
    verdicts = Counter(one.verdict for one in inside)
    ratios = [one.ratio for one in inside if one.ratio]
    return Standing(
        kernel=results[0].kernel,
        baseline=results[0].baseline,
        counts={word.lower(): verdicts[word] for word in WORDS},
        mean=geometric_mean(ratios),
        least=min((ratio.ratio for ratio in ratios), default=None),
        left_out=dict(Counter(one.why_left_out for one in results if one.why_left_out)),
    )


@dataclass(frozen=True)
class Ranking:
    """Kernels against one baseline, best first: by the low end of the geometric mean over the common workloads, with
    an interval that holds for all kernels at once."""

    results: dict[str, list[Compared]]
    """Kernel -> its results, best kernel first. Kernels without a result to compare come last."""
    means: dict[str, Ratio]
    """Kernel -> its mean over the common workloads."""
    common: int = 0
    """Workloads that every ranked kernel passed."""

    @cached_property
    def standings(self) -> list[Standing]:
        """Each kernel over its own workloads, in order."""
        return [standing_of(results) for results in self.results.values()]

    @cached_property
    def absent(self) -> dict[str, dict[str, int]]:
        """Kernel -> why it was left out -> on how many workloads."""
        return {one.kernel: one.left_out for one in self.standings if one.left_out}

    @cached_property
    def first(self) -> Standing | None:
        """The first kernel that was compared. A list of runs needs no other standing."""
        standings = (standing_of(results) for results in self.results.values())
        return next((one for one in standings if one.was_compared), None)

    @property
    def best(self) -> Standing | None:
        """The best kernel: the first that is FASTER somewhere and whose mean has its low end above 1. None: the baseline."""
        faster = (one for one in self.standings if one.counts["faster"] and one.kernel in self.means)
        return next((one for one in faster if self.means[one.kernel].low > 1), None)

    def tied(self, kernel: str) -> list[str]:
        """The kernels whose mean reaches the low end of this one's."""
        low = self.means[kernel].low
        return [name for name, mean in self.means.items() if name != kernel and mean.high >= low]


def ranking(results: Iterable[Compared], is_contended: bool = False) -> Ranking:
    """Ranks kernels. is_contended: others used the device, so no kernel is best."""
    by_kernel: dict[str, list[Compared]] = {}
    passed: dict[str, dict[str, Compared]] = {}
    for one in results:
        by_kernel.setdefault(one.kernel, []).append(one)
        if not one.why_left_out:
            passed.setdefault(one.kernel, {})[one.place] = one
    ranked = [name for name in by_kernel if name in passed]
    common = set.intersection(*(set(passed[name]) for name in ranked)) if ranked else set()
    while not common and ranked:  # the kernel with the fewest workloads is not ranked
        ranked.remove(min(ranked, key=lambda name: len(passed[name])))
        common = set.intersection(*(set(passed[name]) for name in ranked)) if ranked else set()
    places = sorted(common)
    means = {name: _mean([passed[name][place] for place in places], len(ranked)) for name in ranked}
    order = sorted(by_kernel, key=lambda name: -means[name].low if name in means else math.inf)
    return Ranking({name: by_kernel[name] for name in order}, {} if is_contended else means, len(common))


def _mean(results: Sequence[Compared], comparisons: int) -> Ratio:
    """The geometric mean of a kernel, with an interval for so many kernels at once."""
    wider = [factor_for_many(comparisons, round(one.rounds)) for one in results]
    ratios = [one.ratio for one in results if one.ratio]  # every result that is not left out has one
    mean = geometric_mean(ratios, wider)
    assert mean is not None and len(ratios) == len(wider)
    return mean
