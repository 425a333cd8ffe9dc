"""Parts of a workload by environment: kernels that need environment variables are measured in processes of their own.

The process of such a part has the variables of its kernels, and so has the baseline that is measured there beside them. No
other kernel runs in it, and no ratio joins two parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernels.analysis.statistics import MARGIN
from kernels.analysis.verdicts import SLOWED
from kernels.contract.arm_result import Status, assignments
from kernels.contract.events import MAIN
from kernels.parent.arm import Arm

SLOWER = {"cuda": 1.1, "cpu": 1.5}
"""A baseline that takes this many times as long with a kernel's variables as without them is slowed down by them. Processes
of a CPU differ more."""
CHANCE = {"cuda": 1.02, "cpu": 1.05}
"""Two processes without variables may differ by so much."""
BUSY_SLOWER = 4.0
"""So many times as slow, beside that, other processes of a busy CPU may make it."""


@dataclass
class Part:
    """Arms that are measured in the same processes."""

    arms: list[Arm]
    environment: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    """Notes on how they were checked."""
    margin: float = 0.0
    """At least this margin applies to its results: by so much its variables may slow the baseline down."""

    @property
    def alive(self) -> list[Arm]:
        return [arm for arm in self.arms if arm.is_ok]

    def group(self, name: str) -> str:
        """The name of one of its groups: no two parts have groups of one name."""
        if not self.environment:
            return name
        digest = hashlib.sha256(assignments(self.environment).encode()).hexdigest()[:8]
        return f"env-{digest}" if name == MAIN else f"env-{digest} {name}"

    @property
    def notes(self) -> list[str]:
        if not self.environment:
            return self.told
        return [
            *self.told,
            f"measured in a process of its own with {assignments(self.environment)}, and so was its baseline",
        ]


def parts(arms: Sequence[Arm], baseline: Callable[[], Arm]) -> list[Part]:
    """The parts of a workload, the one without variables first. It has the arms that cannot run here, too.

    baseline: makes one more arm of the baseline.
    """
    apart: dict[str, list[Arm]] = {}
    for arm in arms:
        if arm.is_ok and arm.environment:
            apart.setdefault(assignments(arm.environment), []).append(arm)
    found = [Part([arm for arm in arms if not (arm.is_ok and arm.environment)])]
    for mine in apart.values():
        beside, environment = baseline(), mine[0].environment
        beside.facts["environment"] = environment
        found.append(Part([beside, *mine], environment))
    return found


@dataclass(frozen=True)
class BaselineTimes:
    """The baseline's p50 with the variables of a part, and without them."""

    kind: str
    """Of the device: "cuda" or "cpu"."""
    ns: float
    plain_ns: float
    margins: Sequence[float]
    """Of both measurements."""
    is_busy: bool = False
    """Whether other processes used the CPU during one of them."""
    intervals_ns: Sequence[tuple[float, float]] = ()
    """Of both p50, from their rounds."""

    @property
    def is_slower(self) -> bool | None:
        """Whether the variables slow it down; None if noise of that size hides it."""
        limit = SLOWER[self.kind]
        if self.ns <= limit * self.plain_ns:
            return False
        limit *= BUSY_SLOWER if self.is_busy else 1.0
        for margin in self.margins:
            limit *= 1 + max(0.0, margin - MARGIN)
        return True if self.ns > limit * self.plain_ns else None

    @property
    def factors(self) -> tuple[float, float]:
        """How many times as long it takes with the variables: at least and at most, by both intervals."""
        (low, high), (plain_low, plain_high) = self.intervals_ns or ((self.ns, self.ns), (self.plain_ns, self.plain_ns))
        return low / plain_high, high / plain_low

    @property
    def is_a_little_slower(self) -> bool:
        """Whether it surely takes longer with the variables, by more than chance between two processes."""
        return self.factors[0] > CHANCE[self.kind]

    @property
    def told(self) -> str:
        return f"{self.ns / 1e3:.4g} us with it, {self.plain_ns / 1e3:.4g} us without it"


def judge(part: Part, baseline: BaselineTimes) -> None:
    """A part whose variables slow its baseline down has no speedups; one where they may, no verdicts. Where they do so by less,
    its results need as much more: beyond WIDEST_MARGIN there is no verdict."""
    if baseline.is_slower:
        for arm in part.alive[1:]:
            arm.fail(Status.SUSPECT, f"its environment slows the baseline down: {baseline.told}")
    elif baseline.is_slower is None:
        part.margin = baseline.ns / baseline.plain_ns - 1
        part.told.append(
            f"{assignments(part.environment)} may slow the baseline down: {baseline.told}; "
            + ("other processes used the CPU" if baseline.is_busy else "noise of that size hides it")
        )
    elif baseline.is_a_little_slower:
        part.margin = baseline.factors[1] - 1
        part.told.append(f"{SLOWED} {baseline.ns / baseline.plain_ns:.3g} times slower: {baseline.told}")
