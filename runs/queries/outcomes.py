"""One line a run for lists: the best candidate and failures. One query for any number of runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from kernels.contract.arm_result import FAILURES
from kernels.report.summary import leading
from runs.models import Run
from runs.queries import measurements
from runs.templatetags.figures import MARKS


@dataclass(frozen=True)
class Outcome:
    """The best candidate of a run (most often faster than the baseline), and the failed results."""

    best: str = ""
    baseline: str = ""
    speedup: float | None = None
    """Geometric mean over the workloads compared."""
    faster: int = 0
    slower: int = 0
    same: int = 0
    undecided: int = 0
    compared: int = 0
    """Number of workloads with a speedup."""
    of: int = 0
    """Number of workloads tried."""
    faults: dict[str, int] = field(default_factory=dict)
    """Status -> number of failed results, of all kernels."""

    @property
    def leading(self) -> str:
        return leading(asdict(self))

    @property
    def mark(self) -> str:
        return MARKS.get(self.leading, "")

    @property
    def style(self) -> str:
        return self.leading if self.leading in ("faster", "slower") else "same"

    @property
    def where(self) -> str:
        """ "faster on 6 of 8, slower on 1"."""
        if self.leading not in ("faster", "slower"):
            return {"same": f"as fast as {self.baseline}", "undecided": "undecided"}.get(self.leading, "no verdict")
        if self.of == 1:
            return self.leading
        rest = ("slower", self.slower) if self.leading == "faster" else ("faster", self.faster)
        also = f", {rest[0]} on {rest[1]}" if rest[1] else ""
        return f"{self.leading} on {getattr(self, self.leading)} of {self.of}{also}"

    @property
    def faulty(self) -> int:
        return sum(self.faults.values())

    def row(self) -> dict[str, Any]:
        """Its columns in the list's files; empty if nothing was compared."""
        speedup = "" if self.speedup is None else round(self.speedup, 4)
        columns = {"best": self.best, "speedup": speedup, "faster": self.faster, "compared": self.compared}
        return (columns if self.best else dict.fromkeys(columns, "")) | {"faulty": self.faulty}


@dataclass
class Tally:
    """Counts of one kernel in one run."""

    baseline: str
    verdicts: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    logs: float = 0.0
    """Sum of the logarithms of its speedups."""

    @property
    def standing(self) -> tuple[int, float]:
        return self.verdicts["FASTER"], self.logs / self.compared


def with_outcomes(runs: Iterable[Run]) -> list[tuple[Run, Outcome]]:
    """Each run with its outcome so far."""
    listed = list(runs)
    kernels: dict[int, dict[str, Tally]] = {run.pk: {} for run in listed}
    faults: dict[int, Counter[str]] = {run.pk: Counter() for run in listed}
    for one in measurements.verdicts([run.pk for run in listed if run.done]):
        tally = kernels[one.run].setdefault(one.kernel, Tally(one.baseline))
        tally.verdicts[one.verdict] += one.results
        tally.compared += one.compared
        tally.logs += one.logs or 0.0
        if one.status in FAILURES:
            faults[one.run][one.status] += one.results
    return [(run, _outcome(kernels[run.pk], faults[run.pk])) for run in listed]


def _outcome(kernels: dict[str, Tally], failed: Counter[str]) -> Outcome:
    faults = {str(status): failed[status] for status in FAILURES if failed[status]}
    compared = {name: tally for name, tally in kernels.items() if tally.compared and name != tally.baseline}
    if not compared:
        return Outcome(faults=faults)
    best, tally = max(compared.items(), key=lambda item: item[1].standing)
    return Outcome(
        best=best,
        baseline=tally.baseline,
        speedup=math.exp(tally.logs / tally.compared),
        faster=tally.verdicts["FASTER"],
        slower=tally.verdicts["SLOWER"],
        same=tally.verdicts["SAME"],
        undecided=tally.verdicts["UNDECIDED"],
        compared=tally.compared,
        of=tally.verdicts.total(),
        faults=faults,
    )
