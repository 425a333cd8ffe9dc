"""What there is of each kernel, counted: for the list of all kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.db.models import Count, Max

from kernels.contract.arm_result import Status, Verdict
from runs.models import Result

LOOKED_AT = (Status.OK, Status.INCORRECT, Status.SUSPECT)
"""States of a result with an output that was looked at."""


class Tally(NamedTuple):
    """Of a kernel's results, without unsupported ones."""

    results: int
    last: int
    """Row id of the newest."""
    judged: int
    """The same of those with an output that was looked at; 0: there is none."""


def tallies() -> dict[int, Tally]:
    """Row id of a kernel -> its tally; of those with results. An index alone answers it."""
    rows = Result.objects.order_by().values_list("kernel", "status").annotate(count=Count("pk"), last=Max("pk"))
    found: dict[int, Tally] = {}
    for kernel, status, count, last in rows:
        if status != Status.UNSUPPORTED:
            before = found.get(kernel, Tally(0, 0, 0))
            judged = last if status in LOOKED_AT else 0
            found[kernel] = Tally(before.results + count, max(before.last, last), max(before.judged, judged))
    return found


def checks(pks: Iterable[int]) -> dict[int, str]:
    """How the check of each of these results went: "correct", "unknown" (without a reference), "not the same work", or its
    status."""
    rows = Result.objects.filter(pk__in=pks).values_list("pk", "status", "is_checked", "other_work")
    return {pk: _check(*row) for pk, *row in rows}


def _check(status: str, correct: int, other_work: str) -> str:
    if status != Status.OK:
        return status
    return str(Verdict.OTHER_WORK) if other_work else "correct" if correct else "unknown"
