"""Lines of many runs: what history, ladders and lists need of a result. runs/queries/point_rows.py reads them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from kernels.analysis.processes import rounds_for_many
from kernels.analysis.standing import Compared
from kernels.analysis.verdicts import judged
from kernels.contract.arm_result import Ratio, Status, Verdict
from runs.queries.ratio import Ratio as SpeedupRatio


@dataclass(slots=True)
class Point:
    """One result of a series. Not a StoredArm, and not frozen: thousands are made at a time."""

    pk: int
    kernel: str
    limit_ms: float | None
    """Speed of light: least time in ms that the device needs for the work."""
    status: str
    why: str
    n: int | None
    rounds: int | None
    p50_ms: float | None
    p50_low_ms: float | None
    p50_high_ms: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    paired: bool
    left_after_round: int | None
    effective_sample_size: float | None
    is_checked: int
    other_work: str
    version: int | None
    sha256: str | None
    is_confirmed: bool
    mode: str
    group: str
    baseline: str
    margin: float
    workload: int
    run: int
    created_at: datetime
    gpu: int | None
    started_at: datetime | None
    environment: int
    demo: str
    contended: bool
    withdrawn_at: datetime | None
    isolated: bool
    processes: int | None
    base_sha256: str | None
    base_p50_ms: float | None
    how: tuple[Any, ...]
    """Protocol values that must agree: kernels.report.comparison.COMPARABILITY_KEYS."""

    @property
    def is_too_short(self) -> bool:
        """Whether its calls were too short for isolation to tell."""
        return self.isolated and self.why.startswith(Verdict.TOO_SHORT)

    @property
    def verdict(self) -> Verdict | Status:
        return _judged(self)[0]

    @property
    def ratio(self) -> SpeedupRatio | None:
        """Its paired speedup; None without one, or if its correctness is unknown."""
        if self.status != Status.OK or not self.paired or not self.is_checked or self.other_work:
            return None
        if self.speedup is None or self.speedup_low is None or self.speedup_high is None:
            return None
        return SpeedupRatio(self.speedup, self.speedup_low, self.speedup_high, self.margin)

    @property
    def compared(self) -> Compared:
        return _compared(self, f"{self.workload} {self.mode}")


class RunResult(NamedTuple):
    """What the list of runs needs of a result: thousands are read at a time."""

    run: int
    measurement: int
    workload: int
    operation: str
    kernel: str
    baseline: str
    margin: float
    status: str
    p50_ms: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    rounds: int | None
    left_after_round: int | None
    effective_sample_size: float | None
    is_checked: int
    other_work: str
    in_pairs: int
    is_too_short: int

    @property
    def paired(self) -> bool:
        return bool(self.in_pairs)

    @property
    def compared(self) -> Compared:
        return _compared(self, str(self.workload))


def _judged(one: Point | RunResult) -> tuple[Verdict | Status, Ratio | None]:
    word, ratio = judged(one, one.baseline, one.margin)
    return (Verdict.TOO_SHORT, ratio) if word == Verdict.NONE and one.is_too_short else (word, ratio)


def _compared(one: Point | RunResult, place: str) -> Compared:
    word, ratio = _judged(one)
    processes = one.processes or 1 if isinstance(one, Point) else 1  # a list of runs shows no interval for many
    rounds = rounds_for_many(one.effective_sample_size or one.rounds or 0, processes)
    return Compared(place, one.kernel, one.baseline, word, ratio, one.margin, rounds)
