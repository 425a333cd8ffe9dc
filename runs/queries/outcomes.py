"""One line a run for lists: the standing of its first kernel, and failures. One query for any number of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Any

from kernels.analysis.standing import Compared, Ranking, Standing, ranking
from kernels.contract.arm_result import FAILURES, Verdict
from runs.models import Run
from runs.queries import point_rows
from runs.queries.points import RunResult
from runs.templatetags.figures import MARKS


@dataclass(frozen=True)
class Outcome:
    """The kernel that ranks first, and the failed results. The charts of the run show the same kernel."""

    first: Standing | None = None
    """None: nothing was compared."""
    contended: bool = False
    """Others used the device."""
    is_checked: bool = True
    """Whether the run has reached its end, and so each kernel was checked again in a new process."""
    faults: dict[str, int] = field(default_factory=dict)
    """Status -> number of failed results, of all kernels."""
    operation: str = ""
    """Of the kernel, if the run measured several operations."""
    others: int = 0
    """Operations beside that one."""

    @property
    def name(self) -> str:
        """The kernel, with its operation if the run measured several; empty if nothing was compared."""
        return "/".join(filter(None, [self.operation, self.first.kernel])) if self.first else ""

    @property
    def more(self) -> str:
        """ "2 more operations": what its sentence is not about; empty of a run of one operation."""
        return f"{self.others} more operation{'s' * (self.others > 1)}" if self.others else ""

    @property
    def word(self) -> str:
        return self.first.word if self.first else ""

    @property
    def mark(self) -> str:
        return MARKS.get(self.word, "") if self.is_checked else ""

    @property
    def style(self) -> str:
        decided = self.word in ("faster", "slower") and not self.contended and self.is_checked
        return self.word if decided else "same"

    @property
    def words(self) -> str:
        """ "faster on 6, slower on 2"; on one workload "faster"."""
        if self.first is None or self.first.of < 2:
            return self.word
        return ", ".join(f"{word} on {count}" for word, count in self.first.counts.items() if count)

    @property
    def sentence(self) -> str:
        """ "faster on 6, slower on 2, 1.12x over 8 (1.11 to 1.13), least 0.82x"."""
        return self.first.sentence if self.first else ""

    @property
    def faulty(self) -> int:
        return sum(self.faults.values())

    def row(self) -> dict[str, Any]:
        """Its columns in the list's files; empty if nothing was compared."""
        columns: dict[str, Any] = dict.fromkeys(COLUMNS, "")
        if one := self.first:
            columns |= {"kernel": one.kernel, "faster": one.counts["faster"], "slower": one.counts["slower"]}
            columns |= {"compared": one.n, "outcome": one.sentence}
            if one.mean:
                columns |= zip(("speedup", "speedup_low", "speedup_high"), (round(x, 4) for x in one.mean), strict=True)
            columns["least"] = "" if one.least is None else round(one.least, 4)
        return columns | {"contended": self.contended, "faulty": self.faulty}


COLUMNS = ("kernel", "speedup", "speedup_low", "speedup_high", "least", "faster", "slower", "compared", "outcome")


def first_kernel(ranked: Ranking) -> Standing | None:
    """The kernel that ranks first; where no kernel has a verdict, the one that measured the largest speedup at the same work."""
    first = ranked.first
    if first is None or first.word:
        return first
    ratios = {
        name: [one.ratio.ratio for one in results if one.ratio and one.verdict != Verdict.OTHER_WORK]
        for name, results in ranked.results.items()
    }
    means = {name: geometric_mean(mine) for name, mine in ratios.items() if mine}
    best = max(means, key=lambda name: means[name], default=first.kernel)
    return next(one for one in ranked.standings if one.kernel == best)


def with_outcomes(runs: Iterable[Run]) -> list[tuple[Run, Outcome]]:
    """Each run with its outcome so far."""
    listed = list(runs)
    results: dict[int, list[RunResult]] = {}
    for one in point_rows.run_results([run.pk for run in listed if run.done]):
        results.setdefault(one.run, []).append(one)
    return [(run, _outcome(results.get(run.pk, []), run.contended, run.state == Run.State.DONE)) for run in listed]


def _outcome(results: list[RunResult], contended: bool, is_checked: bool) -> Outcome:
    failed = Counter(one.status for one in results)
    faults = {str(status): failed[status] for status in FAILURES if failed[status]}
    parts: dict[str, list[Compared]] = {}
    for one in results:
        if one.kernel != one.baseline:
            parts.setdefault(one.operation, []).append(one.compared)
    firsts = {name: first_kernel(ranking(part, contended)) for name, part in parts.items()}
    operation, first = next(((name, first) for name, first in firsts.items() if first), ("", None))
    return Outcome(first, contended, is_checked, faults, operation if len(firsts) > 1 else "", max(0, len(firsts) - 1))
