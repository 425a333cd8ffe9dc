"""One line a run for lists: the best candidate and failures. One query for any number of runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from django.db.models import Count, Q, Sum
from django.db.models.functions import Ln

from kernels.contract.arm_result import FAILURES, Verdict
from kernels.report.summary import leading
from runs.models import Result, Run
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
        found = {"best": self.best, "speedup": speedup, "faster": self.faster, "compared": self.compared}
        return (found if self.best else dict.fromkeys(found, "")) | {"faulty": self.faulty}


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
    for pk, name, baseline, verdict, status, count, compared, logs in _counts([run.pk for run in listed if run.done]):
        tally = kernels[pk].setdefault(name, Tally(baseline))
        tally.verdicts[verdict] += count
        tally.compared += compared
        tally.logs += logs or 0.0
        if status in FAILURES:
            faults[pk][status] += count
    return [(run, _outcome(kernels[run.pk], faults[run.pk])) for run in listed]


def _counts(runs: list[int]) -> Iterable[Any]:
    """Verdict counts and log-speedups of each kernel in each run."""
    if not runs:
        return []
    what = ("measurement__run", "kernel__name", "measurement__baseline", "verdict", "status")
    known = Q(speedup__gt=0) & ~Q(verdict=Verdict.UNKNOWN)
    found = Result.objects.filter(measurement__run__in=runs).order_by().values_list(*what)
    return found.annotate(n=Count("id"), compared=Count("id", filter=known), logs=Sum(Ln("speedup"), filter=known))


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
