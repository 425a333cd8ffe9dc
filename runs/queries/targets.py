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
        """The pinned time of the baseline over the factor; without one, its newest time."""
        if self.ladder is None:
            return None
        pinned = self.pin is not None and self.pin.kernel == self.ladder.base.kernel
        return (self.pin.p50_ms if self.pin and pinned else self.ladder.base_ms) / self.target.factor

    @property
    def point(self) -> Point | None:
        """The best kernel there; the baseline, if nobody beats it."""
        if self.ladder is None:
            return None
        return self.ladder.best[0] if self.ladder.best else self.ladder.base

    @property
    def is_confirmed(self) -> bool:
        return self.point is not None and self.point.is_confirmed

    @property
    def state(self) -> str:
        """reached: the low end of the best kernel's interval reaches it. beyond: it is below the speed of light."""
        if self.ladder is None or self.goal_ms is None:
            return UNMEASURED
        best, needed = self.ladder.best, self.ladder.base_ms / self.goal_ms
        if best and best[1].low >= needed:
            return REACHED
        most = self.ladder.most
        return BEYOND if most is not None and needed > most else OPEN

    @property
    def missing_ms(self) -> float | None:
        """The best time less the target's; None where it is no more, or unknown."""
        if self.goal_ms is None or self.point is None or not self.point.p50_ms:
            return None
        missing = self.point.p50_ms - self.goal_ms
        return missing if missing > 0 and self.state != REACHED else None

    def share(self, ms: float | None) -> float | None:
        """The speed of light over a time."""
        light = self.ladder.base.limit_ms if self.ladder and self.ladder.most else None
        return min(1.0, light / ms) if light and ms else None

    @property
    def reach(self) -> float | None:
        """What the best kernel has of the speed of light."""
        return self.share(self.point.p50_ms if self.point else None)

    @property
    def goal(self) -> float | None:
        """What the target has of the speed of light."""
        return self.share(self.goal_ms)

    @property
    def drift(self) -> Drift | None:
        return drift(self.pin, self.ladder.base) if self.pin and self.ladder else None


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
