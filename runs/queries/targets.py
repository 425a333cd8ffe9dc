"""How far the best kernel is from each target, and whether a baseline has drifted from where it was pinned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kernels.analysis.statistics import WIDEST_MARGIN
from kernels.contract.arm_result import Status
from runs.models import Pin, Target, TierScale
from runs.queries import ladder
from runs.queries.history import Series
from runs.queries.ladder import Ladder
from runs.queries.points import Point
from runs.queries.ratio import Ratio

NO_TIERS = TierScale(name="", body=[])
REACHED, OPEN, BEYOND, UNMEASURED = "reached", "open", "beyond", "unmeasured"
Place = tuple[int, str, str]
"""(workload, mode, device name)."""


@dataclass(frozen=True)
class Drift:
    """A baseline against its pinned time: the ratio of p50 now to then, above 1 is slower. The interval has the ends of both
    intervals, widened by the larger A/A margin of the two measurements."""

    ratio: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """Whether it differs by more than intervals and margins explain."""
        return self.low > 1 or self.high < 1


def drift(pin: Pin, now: Point) -> Drift | None:
    """None: nothing can be said. It was measured by another baseline, among others, too noisily, or is the pinned result."""
    if now.kernel != pin.kernel or now.run == pin.run_id or now.status != Status.OK or now.contended:
        return None
    if not (now.p50_ms and now.p50_low_ms and now.p50_high_ms) or now.margin > WIDEST_MARGIN:
        return None
    widest = 1 + max(now.margin, pin.margin)
    low, high = now.p50_low_ms / pin.p50_high_ms, now.p50_high_ms / pin.p50_low_ms
    return Drift(now.p50_ms / pin.p50_ms, low / widest, high * widest)


def is_comparable(pin: Pin, series: Series, point: Point) -> bool:
    """Whether a result was measured on the card of the pinned one, with the same fingerprint: driver, versions, harness. A pin
    whose run is deleted has neither."""
    run = pin.run
    if run is None or run.environment is None or run.pk == point.run:
        return run is not None and run.pk == point.run
    same_card = run.gpu_id is not None and run.gpu_id == point.gpu and not (run.demo or point.demo)
    return same_card and run.environment.fingerprint == series.terms.fingerprint


def drift_there(pin: Pin, ladder: Ladder) -> Drift | None:
    """How far the newest later result of the baseline that can be compared with the pin is from it; None: there is none."""
    later = (point for one, point in ladder.bases if point.run > (pin.run_id or 0) and is_comparable(pin, one, point))
    return next((found for point in later if (found := drift(pin, point))), None)


@dataclass
class Progress:
    """A target and what was measured there."""

    target: Target
    ladder: Ladder | None = None
    """None: no baseline was measured there."""

    @property
    def pin(self) -> Pin | None:
        return self.target.pin

    @property
    def goal_ms(self) -> float | None:
        """The pinned time of the baseline over the factor; without one that can be compared, its newest time."""
        if self.ladder is None:
            return None
        pin, base = self.pin, self.ladder.base
        pinned = pin and pin.kernel == base.kernel and is_comparable(pin, self.ladder.series, base)
        return (pin.p50_ms if pin and pinned else self.ladder.base_ms) / self.target.factor

    @property
    def needed(self) -> float | None:
        """The factor over the ladder's baseline that reaches the target."""
        return self.ladder.base_ms / self.goal_ms if self.ladder and self.goal_ms else None

    @property
    def best(self) -> tuple[Point, Ratio] | None:
        """The best confirmed result if it reaches the target; else the best one. None: the baseline is best."""
        return self.ladder.best_for(self.needed) if self.ladder and self.needed else None

    @property
    def point(self) -> Point | None:
        """The best kernel there; the baseline, if nobody beats it."""
        if self.ladder is None:
            return None
        return self.best[0] if self.best else self.ladder.base

    @property
    def ms(self) -> float | None:
        """Its time, as on the ladder: the baseline's p50 / its paired speedup."""
        if self.ladder is None:
            return None
        return self.ladder.base_ms / (self.best[1].ratio if self.best else 1.0)

    @property
    def is_confirmed(self) -> bool:
        return self.point is not None and self.point.is_confirmed

    @property
    def state(self) -> str:
        """reached: the low end of the best kernel's interval reaches it. beyond: it is below the speed of light."""
        if self.ladder is None or self.needed is None:
            return UNMEASURED
        if self.best and self.best[1].low >= self.needed:
            return REACHED
        most = self.ladder.most
        return BEYOND if most is not None and self.needed > most else OPEN

    @property
    def missing_ms(self) -> float | None:
        """The best time less the target's; None where it is no more, or unknown."""
        if self.goal_ms is None or self.ms is None:
            return None
        missing = self.ms - self.goal_ms
        return missing if missing > 0 and self.state != REACHED else None

    def share(self, ms: float | None) -> float | None:
        """The speed of light over a time."""
        light = self.ladder.base.limit_ms if self.ladder and self.ladder.most else None
        return min(1.0, light / ms) if light and ms else None

    @property
    def reach(self) -> float | None:
        """What the best kernel has of the speed of light."""
        return self.share(self.ms)

    @property
    def goal(self) -> float | None:
        """What the target has of the speed of light."""
        return self.share(self.goal_ms)

    @property
    def drift(self) -> Drift | None:
        return drift_there(self.pin, self.ladder) if self.pin and self.ladder else None


@dataclass
class Standings:
    progress: list[Progress] = field(default_factory=list)

    @property
    def reached(self) -> int:
        return sum(one.state == REACHED for one in self.progress)

    @property
    def drifted(self) -> list[Progress]:
        return [one for one in self.progress if one.drift and one.drift.is_certain]


def standings(targets: Sequence[Target], series: Iterable[Series]) -> Standings:
    """Each target with what was measured there. The intervals hold for all comparisons on the targets' workloads of one
    device at once."""
    wanted = {one.place for one in targets}
    by_device: dict[str, list[Series]] = {}
    for one in series:
        name = str(one.environment.get("device") or "")
        if (one.terms.workload, one.terms.mode, name) in wanted:
            by_device.setdefault(name, []).append(one)
    ladders: dict[Place, Ladder] = {
        (made.series.terms.workload, made.mode, name): made
        for name, there in by_device.items()
        for made in ladder.built(there, NO_TIERS)
    }
    return Standings([Progress(one, ladders.get(one.place)) for one in targets])
