"""What was measured beside a line: the baseline in the same rounds, and the baseline against itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernels.analysis.changes import RULE, Test, Value, compare
from runs.queries.line_rows import baselines
from runs.queries.lines import Line

FLOOR_SHARE = 0.9


@dataclass(frozen=True)
class Beside:
    """By the run of a line's point. Runs without such a time are missing."""

    baseline: str
    times: dict[int, Value] = field(default_factory=dict)
    """p50 of the baseline in ms; empty if the line is the baseline's own."""
    aa: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    """The ratio of the baseline to itself, with its interval."""

    @property
    def floor(self) -> float | None:
        """A/A: the distance from 1 within which nine in ten runs are, as a share. None of few runs."""
        off = sorted(abs(ratio - 1) for ratio, *_ in self.aa.values())
        return off[min(len(off) - 1, int(FLOOR_SHARE * len(off)))] if len(off) >= RULE.least else None

    def at(self, line: Line, index: int) -> Test | None:
        """The baseline tested where the line is, between the same levels; None if it was not measured there."""
        runs = [point.run for point in line.points]
        known = [number for number, run in enumerate(runs) if run in self.times]
        before = max((edge for edge in line.edges if edge < index), default=0)
        after = min((edge for edge in line.edges if edge > index), default=len(runs))
        old = [self.times[runs[number]] for number in known if before <= number < index]
        new = [self.times[runs[number]] for number in known if index <= number < after]
        return compare([*old, *new], len(old)) if known else None


def beside(line: Line, kernel: str) -> Beside:
    """Of the baseline of the line's newest run; one query."""
    baseline = line.points[-1].baseline
    runs, last = [point.run for point in line.points], line.points[-1]
    times, ratios = {}, {}
    for one in baselines(runs, line.workload, line.mode, last.group, baseline):
        if one.aa:
            ratios[one.run] = (one.aa[0], one.aa[1], one.aa[2])
        if kernel != baseline and one.p50_ms and one.p50_low_ms and one.p50_high_ms:
            times[one.run] = Value(one.p50_ms, one.p50_low_ms, one.p50_high_ms)
    return Beside(baseline, times, ratios)
