"""What the rounds of a group of arms gave: samples, and how they came about. Of one process, or of several as one."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace
from typing import Any

from kernels.contract.replies import TimedBlock
from kernels.parent.drive import AA


@dataclass
class Reading:
    """Reading of a protocol on one group of arms."""

    mode: str
    blocks: dict[str, list[list[float]]] = field(default_factory=dict)
    """Arm -> rounds -> samples in ns. The baseline's A/A arm has its own name."""
    calls: dict[str, int] = field(default_factory=dict)
    orders: list[list[str]] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    """Arm -> round after which it was dropped (far behind)."""
    notes: list[str] = field(default_factory=list)
    sets: int = 1
    covered: bool = True
    flushed: bool = False
    paired: bool = True
    rest: float = 0.0
    """Rest before each block, as a multiple of the block's length."""
    rounds_s: float = 0.0
    """Wall time of all rounds."""
    repeated: int = 0
    """Rounds repeated because heat slowed the device down."""
    sights: dict[str, int] = field(default_factory=dict)
    """Arm -> how often calls of a sustained block met the same values."""
    cold: dict[str, list[float]] = field(default_factory=dict)
    """Arm -> times of single calls on cold inputs (ns), if blocks are graph replays."""
    spots: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Arm -> (time of a round's block, time of a block in the same round whose inputs came last), in ns: of the first call on a
    CPU, the mean of the calls on a GPU."""
    between: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Arm -> what passed between the calls of each block: see `between`. Empty on a GPU."""
    sm_mhz: dict[str, list[float]] = field(default_factory=dict)
    """Arm -> SM clock before each block."""
    host: dict[str, Any] | None = None
    """What others took of the host's CPU meanwhile: the fields of a HostLoad. None: unknown."""

    processes: list[Reading] = field(default_factory=list)
    """The readings of which this one consists, if several processes measured; empty for one."""

    def note_between(self, arm: str, got: TimedBlock) -> None:
        """Notes it of a block; not on a GPU."""
        if got.between_ns:
            self.between.setdefault(arm, []).append(between(got))

    @property
    def touched_once(self) -> bool:
        """Every input set was out of the cache when it was read."""
        return self.mode != "warm" and self.covered and self.sets > 1

    def medians(self, arm: str) -> list[float]:
        return [statistics.median(ticks) for ticks in self.blocks[arm]]

    def pairs(self, baseline: str, arm: str) -> tuple[list[float], list[float]]:
        """(baseline, arm): one time per round that both ran. The baseline's is the geometric mean of its two arms, unless
        this is one of them."""
        base, medians = self.medians(baseline), self.medians(arm)
        if arm != baseline + AA and baseline + AA in self.blocks:
            base = [math.sqrt(a * b) for a, b in zip(base, self.medians(baseline + AA), strict=True)]
        return base[: len(medians)], medians

    @property
    def by_process(self) -> list[Reading]:
        return self.processes or [self]


def between(got: TimedBlock) -> tuple[float, float]:
    """Of a block on a CPU: the medians of (what passed between a call's end and the line that may copy its output, the call), in
    ns."""
    return statistics.median(got.between_ns), statistics.median(got.ticks_ns)


def of_one_baseline(readings: list[Reading], baseline: str) -> list[Reading]:
    """The readings that have the baseline, if the first one has it: in a later process it may have failed."""
    has = baseline in readings[0].blocks
    return [reading for reading in readings if not has or baseline in reading.blocks]


def joined(readings: list[Reading]) -> Reading:
    """The readings of several processes, one after the other, as one."""
    first = readings[0]
    if len(readings) == 1:
        return first
    notes = [note for reading in readings for note in reading.notes]
    whole = replace(
        first,
        orders=[order for reading in readings for order in reading.orders],
        notes=list(dict.fromkeys(notes)),
        rounds_s=sum(reading.rounds_s for reading in readings),
        repeated=sum(reading.repeated for reading in readings),
        covered=all(reading.covered for reading in readings),
        host=max((r.host for r in readings if r.host), key=lambda load: load["foreign"], default=None),
        processes=readings,
    )
    for name in ("blocks", "cold", "sm_mhz"):
        setattr(
            whole,
            name,
            {arm: [v for r in readings for v in getattr(r, name).get(arm, [])] for arm in getattr(first, name)},
        )
    return whole
