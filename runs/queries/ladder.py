"""The ladder of a workload: kernels between the baseline and the device's limit; the steps are the tiers of a scale.

A kernel's position is its paired speedup in one run. Kernels of several runs share a ladder only if their terms agree
(history.Terms): card, environment, mode, protocol, baseline and its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.db.models import QuerySet

from kernels.analysis.statistics import as_margin, for_many, word
from kernels.analysis.verdicts import enough_rounds, is_noisy
from kernels.catalog import operations
from kernels.contract.arm_result import Verdict
from kernels.report.cells import three_digits
from runs.models import Environment, Tier, TierScale
from runs.queries import history, point_rows
from runs.queries.foremost import foremost, surest
from runs.queries.history import Series
from runs.queries.points import Point
from runs.queries.ratio import Ratio

REACHED, NEXT, OPEN, BEYOND = "reached", "next", "open", "beyond"
DECIDED = (Verdict.SLOWER, Verdict.SAME)
"""Words that say that a kernel is not faster."""
FIELDS = (
    "workload", "workload_key", "mode", "device", "scale", "tier", "grade", "factor", "state", "target_ms", "baseline",
    "baseline_p50_ms", "baseline_contended", "limit_ms", "best", "undecided", "speedup", "speedup_low", "speedup_high",
    "confirmed", "comparisons", "best_p50_ms", "run", "result", "fingerprint",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One tier on a workload."""

    tier: Tier
    target_ms: float
    """The baseline's p50 over the factor."""
    state: str
    """reached: the low end of a kernel's interval reaches it. next: the first tier that is not reached. open:
    later tiers. beyond: less time than the device needs."""
    is_confirmed: bool = False
    """Whether a confirmed result reaches it."""


@dataclass
class Ladder:
    """The ladder of one workload in one mode."""

    series: Series
    base: Point
    """The baseline's newest result of an uncontended run; of a contended one only where there is no other."""
    scale: TierScale
    kernels: list[tuple[Point, Ratio]] = field(default_factory=list)
    """Results on these terms, fastest first: of each kernel those that `_standing` chooses. The intervals hold for all
    comparisons at once."""
    comparisons: int = 1
    """Results that are compared with a baseline, on all ladders of the device."""
    failed: list[Point] = field(default_factory=list)
    """Results without a speedup."""
    elsewhere: int = 0
    """Kernels measured only on other terms."""
    repeats: set[int] = field(default_factory=set)
    """Row ids of unconfirmed results of a source that has an older confirmed one: they are shown and do not count."""
    bases: list[tuple[Series, Point]] = field(default_factory=list)
    """The baseline's results on all terms, the newest first."""

    @property
    def mode(self) -> str:
        return self.series.terms.mode

    @property
    def base_ms(self) -> float:
        assert self.base.p50_ms is not None
        return self.base.p50_ms

    @property
    def best(self) -> tuple[Point, Ratio] | None:
        """The foremost of FASTER kernels of uncontended runs. None: the baseline is best."""
        return next(iter(self._foremost), None)

    def best_for(self, factor: float) -> tuple[Point, Ratio] | None:
        """The foremost confirmed result that reaches this factor; else the foremost result that does; else the best one."""
        able = [placed for placed in self._sure if placed[1].low >= factor]
        confirmed = [placed for placed in able if placed[0].is_confirmed]
        return next(iter(foremost(confirmed or able)), self.best)

    @cached_property
    def _foremost(self) -> list[tuple[Point, Ratio]]:
        return foremost(self._sure)

    @cached_property
    def _sure(self) -> list[tuple[Point, Ratio]]:
        return [placed for placed in self.kernels if _counts(*placed) and placed[0].pk not in self.repeats]

    @cached_property
    def undecided(self) -> list[tuple[Point, Ratio]]:
        """Results of which it is not known whether they are faster than the baseline; the highest estimate first."""
        return [placed for placed in self.kernels if _is_open(*placed) and placed[0].pk not in self.repeats]

    @property
    def why_undecided(self) -> str:
        """The first of them with its reason: "triton-nsa (margin 9%) and 2 more"; empty if there is none."""
        return why_undecided([point for point, _ in self.undecided])

    @property
    def not_apart(self) -> list[tuple[Point, Ratio]]:
        """Other kernels that count, and are tied with the best one."""
        return self._foremost[1:]

    @property
    def maybe_faster(self) -> list[tuple[Point, Ratio]]:
        """Undecided results whose interval reaches the highest low end."""
        low, name = (surest(self._sure), self.best[0].kernel) if self.best else (1.0, "")
        return [one for one in self.undecided if one[1].high >= low and one[0].kernel != name]

    @property
    def best_ms(self) -> float:
        """The best kernel's time: the baseline's p50 / its paired speedup. p50s of two runs are never compared."""
        return self.base_ms / self.best[1].ratio if self.best else self.base_ms

    def missing_ms(self, step: Step) -> float | None:
        """What the best kernel takes longer than a tier allows; None: no longer, so only certainty is missing. The same
        where an undecided result reaches the tier by its estimate."""
        if any(ratio.ratio >= step.tier.factor for _, ratio in self.undecided):
            return None
        return to_go(self.base_ms, self.best[1].ratio if self.best else 1.0, step.tier.factor)

    @property
    def most(self) -> float | None:
        """Largest speedup that the speed of light allows; unknown for cached inputs."""
        return self.base_ms / self.base.limit_ms if self.base.limit_ms and self.mode != "warm" else None

    @property
    def way(self) -> str:
        """What a tier of a scale of shares is, with this speed of light as the example; empty of other scales."""
        if self.scale.kind != TierScale.Kind.LIGHT or self.most is None or self.most <= 1:
            return ""
        most, half = three_digits(self.most), three_digits(self.most**0.5)
        return (
            "Tiers divide the way to the speed of light on a log scale. "
            f"Halfway to {most}x is \N{SQUARE ROOT}{most} = {half}x."
        )

    @cached_property
    def steps(self) -> list[Step]:
        low, confirmed = surest(self._sure), surest(placed for placed in self._sure if placed[0].is_confirmed)
        steps, is_next = [], True
        for tier in self.scale.tiers_up_to(self.most):
            if tier.factor <= low:
                state = REACHED
            elif self.most is not None and tier.factor > self.most:
                state = BEYOND
            else:
                state, is_next = (NEXT if is_next else OPEN), False
            steps.append(Step(tier, self.base_ms / tier.factor, state, tier.factor <= confirmed))
        return steps

    def _at(self, state: str) -> list[Step]:
        return [step for step in self.steps if step.state == state]

    @property
    def reached(self) -> Step | None:
        """The highest tier reached."""
        return next(reversed(self._at(REACHED)), None)

    @property
    def confirmed(self) -> Step | None:
        """The highest tier that a confirmed result reaches."""
        return next((step for step in reversed(self.steps) if step.is_confirmed), None)

    @property
    def next(self) -> Step | None:
        return next(iter(self._at(NEXT)), None)

    @property
    def beyond(self) -> list[Step]:
        return self._at(BEYOND)


def to_go(base_ms: float, speedup: float, factor: float) -> float | None:
    """What a kernel takes longer than the baseline's time over the factor; None: no longer. Its time is the baseline's p50 over
    its paired speedup: p50s of two runs are never compared."""
    missing = base_ms / speedup - base_ms / factor
    return missing if missing > 0 else None


def _counts(point: Point, ratio: Ratio) -> bool:
    """Whether this result can reach a tier: FASTER by the interval that holds for all comparisons at once."""
    sure = word_of(point, ratio) == Verdict.FASTER
    return sure and point.verdict == Verdict.FASTER and not point.contended


def _is_open(point: Point, ratio: Ratio) -> bool:
    """Whether it is not known if this result is faster than the baseline."""
    return not _counts(point, ratio) and (point.contended or word_of(point, ratio) not in DECIDED)


def why_undecided(points: Sequence[Point]) -> str:
    """The first kernel with the reason why nothing is decided, and the number of others: "triton-nsa (margin 9%) and 2 more"."""
    if not points:
        return ""
    first, others = points[0], len({point.kernel for point in points}) - 1
    reason = " and ".join(filter(None, ["contended" * bool(first.contended), _noise(first)]))
    return first.kernel + (f" ({reason})" if reason else "") + (f" and {others} more" if others else "")


def _noise(point: Point) -> str:
    if is_noisy(point.margin):
        return f"margin {as_margin(point.margin, 0)}"
    return point.verdict.lower() if point.verdict in (Verdict.NEEDS_MORE, Verdict.UNPAIRED) else ""


def word_of(point: Point, ratio: Ratio) -> Verdict:
    """What an interval that holds for many comparisons says."""
    return word(ratio.low, ratio.high, point.margin, enough_rounds(point))


def read(environments: Mapping[int, Environment], also: QuerySet[Any] | None = None) -> list[Series]:
    """The newest results on devices of one name. also: row ids of older ones that a page needs beside them."""
    newest = point_rows.newest().filter(measurement__run__environment__in=list(environments))
    if also is not None:
        newest = point_rows.at(newest.order_by().values("pk").union(also))
    return history.grouped(point_rows.points(newest), environments)


def ladders(environments: Mapping[int, Environment], scale: TierScale, key: str = "") -> list[Ladder]:
    """One ladder per workload and mode with a time of the baseline, from small workloads to large ones.

    key: only those of one workload. Their intervals hold for the comparisons on all ladders, as on the page of all.
    """
    return [one for one in built(read(environments), scale) if not key or one.series.workload.key == key]


def built(series: Iterable[Series], scale: TierScale) -> list[Ladder]:
    """The ladders of the newest results on a device of one name. Their intervals hold for all comparisons on them."""
    places: dict[tuple[int, str], list[Series]] = {}
    for one in series:
        places.setdefault((one.terms.workload, one.terms.mode), []).append(one)
    ladders = [ladder for place in places.values() if (ladder := _ladder(place, scale))]
    comparisons = sum(len(ladder.kernels) for ladder in ladders)
    for ladder in ladders:
        ladder.comparisons = comparisons
        ladder.kernels = [(point, _for_many(point, comparisons)) for point, _ in ladder.kernels]
    return ladders


def _for_many(point: Point, comparisons: int) -> Ratio:
    compared = point.compared
    assert compared.ratio is not None
    return Ratio(*for_many(compared.ratio, comparisons, compared.rounds), point.margin)


def _ladder(place: list[Series], scale: TierScale) -> Ladder | None:
    """The ladder on the terms of the baseline's latest uncontended measurement; a device of this site precedes a demo run."""
    bases = sorted(_bases(place), key=lambda one: one[1].run, reverse=True)
    if not bases:
        return None
    current, base = max(bases, key=lambda one: (not one[1].demo, not one[1].contended, one[1].run))
    ladder = Ladder(current, base, scale, bases=bases)
    kernels: dict[str, list[Point]] = {}
    terms = current.terms._replace(group="")  # each group of a run has the baseline, too
    for one in place:
        if one.terms._replace(group="") == terms:
            for point in one.points:
                kernels.setdefault(point.kernel, []).append(point)
    for first, *later in map(_standing, kernels.values()):
        ladder.repeats |= {point.pk for point in later if point.sha256 == first.sha256}
        for point in (first, *later):
            if point.ratio is not None:
                ladder.kernels.append((point, point.ratio))
            elif point.kernel != current.terms.baseline:
                ladder.failed.append(point)
    ladder.kernels.sort(key=lambda candidate: -candidate[1].ratio)
    ladder.failed.sort(key=lambda point: point.kernel)
    ladder.elsewhere = len({point.kernel for one in place for point in one.points} - set(kernels))
    return ladder


def _bases(place: list[Series]) -> list[tuple[Series, Point]]:
    """The times of the operation's baseline. A stand-in is none."""
    known = operations().get(place[0].workload.operation)
    return [
        (one, point)
        for one in place
        for point in one.points
        if point.kernel == one.terms.baseline and point.status == "ok" and point.p50_ms
        if known is None or point.kernel == known.baseline
    ]


def _standing(points: Iterable[Point]) -> list[Point]:
    """Those of one kernel's results that stand on a ladder: the newest confirmed one, and the newest one, if it is later.
    Results of contended runs stand there only if the kernel has no others."""
    by_run = sorted(points, key=lambda point: point.run)
    clean = [point for point in by_run if not point.contended] or by_run
    confirmed = [point for point in clean if point.is_confirmed][-1:]
    return confirmed if confirmed and confirmed[0].run == clean[-1].run else [*confirmed, clean[-1]]


def rows(ladders: Iterable[Ladder], device: str) -> list[dict[str, Any]]:
    """One row of FIELDS per tier."""
    return [_row(ladder, step) | {"device": device} for ladder in ladders for step in ladder.steps]


def _row(ladder: Ladder, step: Step) -> dict[str, Any]:
    best, ratio = ladder.best_for(step.tier.factor) or (None, None)
    return {
        "workload": ladder.series.workload.label,
        "workload_key": ladder.series.workload.key,
        "mode": ladder.mode,
        "scale": ladder.scale.name,
        "tier": step.tier.name,
        "grade": step.tier.grade,
        "factor": step.tier.factor,
        "state": step.state,
        "target_ms": step.target_ms,
        "baseline": ladder.base.kernel,
        "baseline_p50_ms": ladder.base_ms,
        "baseline_contended": ladder.base.contended,
        "limit_ms": ladder.base.limit_ms,
        "best": best.kernel if best else "" if ladder.undecided else ladder.base.kernel,
        "undecided": " ".join(dict.fromkeys(point.kernel for point, _ in ladder.undecided)),
        "speedup": ratio and ratio.ratio,
        "speedup_low": ratio and ratio.low,
        "speedup_high": ratio and ratio.high,
        "confirmed": step.is_confirmed,
        "comparisons": ladder.comparisons,
        "best_p50_ms": best and best.p50_ms,
        "run": best and best.run,
        "result": best and best.pk,
        "fingerprint": ladder.series.terms.fingerprint,
    }
