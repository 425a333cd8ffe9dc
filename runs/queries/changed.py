"""Changes of all kernels: the list, and whether one kernel got slower in a period."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Case, QuerySet, When
from django.db.models.functions import TruncDate

from kernels.analysis.changes import RULE
from kernels.analysis.changes import Change as Verdict
from runs.models import Change, Kernel
from runs.queries import history, point_rows
from runs.queries.lines import Line, drift, lines

MOST_RESULTS = 1700
"""Newest results of a kernel that are read for its answer."""


def listed(kernel: str = "", operation: str = "", device: str = "", since: datetime | None = None) -> QuerySet[Change]:
    """Newest day first, regressions first within a day, the largest first. kernel: a name; device: a GPU's name."""
    wanted = {"kernel__name": kernel, "kernel__operation": operation, "gpu__name": device, "at__gte": since}
    rows = Change.objects.filter(**{name: value for name, value in wanted.items() if value})
    first = Case(When(verdict=Verdict.REGRESSION, then=0), default=1)
    return rows.order_by(TruncDate("at").desc(), first, "-ratio", "-pk")


def slower_workloads(kernel: Kernel, since: datetime, device: str = "") -> int:
    """On how many workloads a regression of a kernel was found that nobody has acknowledged."""
    rows = listed(kernel.name, kernel.operation, device, since).filter(verdict=Verdict.REGRESSION, acknowledged_at=None)
    return rows.order_by().values("workload").distinct().count()


def with_places(rows: QuerySet[Change]) -> QuerySet[Change]:
    """With all that a row of the page shows."""
    large = ("run__config", "run__log", "before__config", "before__log", "gpu__catalogue")
    beside = ("kernel", "workload", "gpu", "acknowledged_by", "run__environment", "before__environment")
    return rows.select_related(*beside).defer(*large)


@dataclass(frozen=True)
class Answer:
    """Whether a kernel got slower in a period, by line."""

    slower: int
    steady: int
    """Lines of which it is certain that they did not."""
    unknown: int
    workloads: int
    slower_workloads: int

    @property
    def lines(self) -> int:
        return self.slower + self.steady + self.unknown


def answer(kernels: Iterable[Kernel], since: datetime | None, device: str = "") -> Answer:
    rows = point_rows.tried().filter(kernel__in=list(kernels))
    if device:
        rows = rows.filter(measurement__run__gpu__name=device)
    rows = rows.filter(measurement__run__demo="")
    points = point_rows.points(rows, MOST_RESULTS)
    told = [(line, got_slower(line, since)) for name in {p.kernel for p in points} for line in _lines(points, name)]
    told = [(line, word) for line, word in told if _is_recent(line, since)]
    words = [word for _, word in told]
    workloads = len({line.workload.pk for line, _ in told})
    slower = len({line.workload.pk for line, word in told if word})
    return Answer(words.count(True), words.count(False), words.count(None), workloads, slower)


def _lines(points: Sequence[Any], name: str) -> list[Line]:
    return lines(history.grouped([point for point in points if point.kernel == name]))


def _is_recent(line: Line, since: datetime | None) -> bool:
    return since is None or line.at(len(line.points) - 1) >= since


def got_slower(line: Line, since: datetime | None) -> bool | None:
    """None: it cannot be told. Steps in the period, and the newest runs against those before the period."""
    count = len(line.points)
    begun = next((n for n in range(count) if since is None or line.at(n) >= since), count)
    if any(test.verdict == Verdict.REGRESSION for test in line.found if test.index >= begun):
        return True
    start = max(line.level, begun - RULE.before, 0)
    test = drift(line.values[start:])
    if test.verdict == Verdict.REGRESSION:
        return True
    return False if test.verdict in (Verdict.NONE, Verdict.IMPROVEMENT) else None
