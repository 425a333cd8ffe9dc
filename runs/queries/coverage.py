"""How often a kernel is faster than another one, and by how much: over the workloads of an operation on a GPU model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kernels.contract.arm_result import Verdict
from runs.queries.leaders import Place, Placed

FACTORS = (1.5, 2.0)
"""For these the page has a number of workloads, too."""


@dataclass
class Curve:
    """Of one kernel: its speedup over a chosen kernel on each place where both were measured in one run."""

    kernel: str
    ratios: list[float]
    places: int
    """Places where the chosen kernel was measured, without those where noise left this one out."""
    faster: int = 0
    """Of the ratios, those that are decided faster."""
    same: int | None = 0
    """Of the ratios, those that are decided the same. None: unknown, because the chosen kernel is not the baseline."""

    def share(self, factor: float) -> float:
        """Share of these places on which it is at least so many times as fast."""
        return sum(ratio >= factor for ratio in self.ratios) / self.places

    @property
    def reached(self) -> list[int]:
        """For each of FACTORS, the number of workloads whose estimate reaches it."""
        return [sum(ratio >= factor for ratio in self.ratios) for factor in FACTORS]


def curves(places: Iterable[Place], over: str) -> list[Curve]:
    """One curve a kernel, the one that is faster on most places first. A place that a kernel lacks counts against its curve;
    one where its result, or that of the chosen kernel, is contended or has a margin above 5% does not count."""
    found: dict[str, Curve] = {}
    noisy, indirect, count = Counter[str](), set[str](), 0
    for place in places:
        record = place.shown
        known = {placed.point.kernel: placed for placed in record.compared}
        below = known.get(over)
        if over != record.base.kernel and (below is None or not below.is_quiet):
            continue
        count += 1
        for name, placed in known.items():
            if not placed.is_quiet:
                noisy[name] += 1
            elif name != over and (below is None or below.point.run == placed.point.run):
                _add(found, name, placed.ratio.ratio / (below.ratio.ratio if below else 1.0), _word(placed, below))
                indirect |= {name} if below else set()
        if below is not None:
            base = {Verdict.SLOWER: Verdict.FASTER, Verdict.SAME: Verdict.SAME}.get(below.word)
            _add(found, record.base.kernel, 1 / below.ratio.ratio, base)
    for name, curve in found.items():
        curve.ratios.sort()
        curve.places = count - noisy[name]
        curve.same = None if name in indirect else curve.same
    return sorted(found.values(), key=_order)


def _word(placed: Placed, below: Placed | None) -> Verdict | None:
    """What is decided of a kernel over the chosen one. Over one that is not the baseline: faster if their intervals over the
    baseline do not touch."""
    if below is None:
        return Verdict.FASTER if placed.counts else Verdict.SAME if placed.word == Verdict.SAME else None
    has_rounds = Verdict.NEEDS_MORE not in (placed.word, below.word)
    return Verdict.FASTER if has_rounds and placed.ratio.low > below.ratio.high else None


def _add(found: dict[str, Curve], name: str, ratio: float, word: Verdict | None) -> None:
    curve = found.setdefault(name, Curve(name, [], 0))
    curve.ratios.append(ratio)
    curve.faster += word == Verdict.FASTER
    curve.same = (curve.same or 0) + (word == Verdict.SAME)


def _order(curve: Curve) -> tuple[object, ...]:
    return -curve.faster, -(curve.same or 0), -sum(curve.ratios) / curve.places, curve.kernel


def left_out(places: Iterable[Place]) -> int:
    """Places with a result that no curve has: it is contended, or its margin is above 5%."""
    return sum(not all(placed.is_quiet for placed in place.shown.compared) for place in places)
