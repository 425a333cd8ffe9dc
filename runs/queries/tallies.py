"""What there is of each kernel, counted: for the list of all kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.core.cache import cache
from django.db.models import Count, Max, QuerySet
from django.utils import timezone

from kernels.contract.arm_result import Status, Verdict
from runs.models import Result

RECENT = 2000
"""Results that are always counted: one that was given its number before another may be stored after it."""
KEPT_S = 24 * 3600
LOOKED_AT = (Status.OK, Status.INCORRECT, Status.SUSPECT)
"""States of a result with an output that was looked at."""
CORRECT, UNKNOWN = "correct", "unknown"
WORST_FIRST = (Status.INCORRECT, Status.SUSPECT, Verdict.OTHER_WORK, UNKNOWN, CORRECT)
"""How a check can go."""


class Tally(NamedTuple):
    """Of a kernel's results, without unsupported ones."""

    results: int
    last: int
    """Row id of the newest."""
    judged: int
    """The same of those with an output that was looked at; 0: there is none."""


def tallies() -> dict[int, Tally]:
    """Row id of a kernel -> its tally; of those with results. Results that were counted before today are not counted again:
    their number and their kernel stay, and so does whether their output was looked at."""
    name = f"tallies-{timezone.now():%Y-%m-%d}"
    upto, found = cache.get(name, (0, {}))
    if found and Result.objects.filter(pk__in=[one.last for one in found.values()]).count() < len(found):
        upto, found = 0, {}  # results were deleted, or a backup was restored
    newest = Result.objects.aggregate(last=Max("pk"))["last"] or 0
    settled = newest - RECENT
    if settled > upto + RECENT:
        found = _with(found, Result.objects.filter(pk__gt=upto, pk__lte=settled))
        upto = settled
        cache.set(name, (upto, found), KEPT_S)
    return _with(found, Result.objects.filter(pk__gt=upto))


def _with(before: dict[int, Tally], results: QuerySet[Result]) -> dict[int, Tally]:
    """Tallies with more results."""
    found = dict(before)
    rows = results.order_by().values_list("kernel", "status").annotate(count=Count("pk"), last=Max("pk"))
    for kernel, status, count, last in rows:
        if status != Status.UNSUPPORTED:
            known = found.get(kernel, Tally(0, 0, 0))
            judged = last if status in LOOKED_AT else 0
            found[kernel] = Tally(known.results + count, max(known.last, last), max(known.judged, judged))
    return found


def checks(pks: Iterable[int]) -> dict[int, str]:
    """How the check of each of these results went: "correct", "unknown" (without a reference), "not the same work", or its
    status."""
    rows = Result.objects.filter(pk__in=pks).values_list("pk", "status", "is_checked", "other_work")
    return {pk: _check(*row) for pk, *row in rows}


def last_checks(pks: Iterable[int]) -> dict[int, str]:
    """The same of a kernel's last run: of all its results there, the worst check. pks: one result of each kernel's run."""
    known = Result.objects.filter(pk__in=pks).values_list("kernel", "measurement__run", "pk")
    asked = {(kernel, run): pk for kernel, run, pk in known}
    rows = Result.objects.filter(measurement__run__in={run for _, run in asked}, status__in=LOOKED_AT)
    found: dict[int, set[str]] = {}
    columns = ("kernel", "measurement__run", "status", "is_checked", "other_work")
    for kernel, run, *row in rows.order_by().values_list(*columns).distinct():
        if pk := asked.get((kernel, run)):
            found.setdefault(pk, set()).add(_check(*row))
    return {pk: min(said, key=WORST_FIRST.index) for pk, said in found.items()}


def _check(status: str, correct: int, other_work: str) -> str:
    if status != Status.OK:
        return status
    return str(Verdict.OTHER_WORK) if other_work else CORRECT if correct else UNKNOWN
