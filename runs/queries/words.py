"""The word of a result as the database says it: the same as kernels/analysis/verdicts.py makes of it when it is read.

Lists of a million results filter by it. tests/site/test_results_words.py holds both against each other.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Case, CharField, Exists, F, OuterRef, Q, Value, When
from django.db.models.lookups import GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from kernels.analysis.statistics import FEW_ROUNDS_WIDER, FEWEST_ROUNDS, MARGIN, MIN_ROUNDS, WIDEST_MARGIN
from kernels.contract.arm_result import Status, Verdict
from runs.models import Result

OK = Q(status=Status.OK)
IS_BASELINE = Q(kernel__name=F("measurement__baseline"))
OTHER_WORK = ~Q(other_work="")
HAS_FEW = Q(rounds=None) | Q(rounds__lt=MIN_ROUNDS)
HAS_TOO_FEW = Q(rounds=None) | Q(rounds__lt=FEWEST_ROUNDS)
HAS_LEFT = Q(left_after_round__isnull=False) & ~Q(left_after_round=0)


def with_failed_baseline() -> Exists:
    """Whether the baseline beside a result is there and not ok: no ratio stands over it."""
    base = Result.objects.filter(measurement=OuterRef("measurement"), kernel__name=OuterRef("measurement__baseline"))
    return Exists(base.exclude(OK))


def word() -> Case:
    """Of a result: its status if not ok, else its verdict."""
    has_none = Q(speedup=None) | Q(speedup_low=None) | Q(speedup_high=None)
    return Case(
        When(~OK, then=F("status")),
        When(Q(p50_ms=None, correctness__isnull=False) & OTHER_WORK, then=Value(Verdict.OTHER_WORK)),
        When(Q(p50_ms=None, is_checked=1), then=Value(Verdict.CORRECT)),
        When(Q(p50_ms=None, correctness__isnull=False), then=Value(Verdict.UNKNOWN)),
        When(p50_ms=None, then=Value(Verdict.NONE)),
        When(Q(measurement__isolated=True, why__startswith=Verdict.TOO_SHORT), then=Value(Verdict.TOO_SHORT)),
        When(IS_BASELINE, then=Value(Verdict.BASELINE)),
        When(OTHER_WORK, then=Value(Verdict.OTHER_WORK)),
        When((has_none | with_failed_baseline()) & Q(paired=True) & HAS_TOO_FEW, then=Value(Verdict.NEEDS_MORE)),
        When(with_failed_baseline(), then=Value(Verdict.NONE)),
        When(Q(is_checked=0) & ~Q(speedup=None), then=Value(Verdict.UNKNOWN)),
        When(has_none, then=Value(Verdict.NONE)),
        When(paired=False, then=Value(Verdict.UNPAIRED)),
        When(HAS_FEW & ~HAS_LEFT, then=Value(Verdict.NEEDS_MORE)),
        When(measurement__margin__gt=WIDEST_MARGIN, then=Value(Verdict.UNDECIDED)),
        *_by_interval(),
        default=Value(Verdict.UNDECIDED),
        output_field=CharField(),
    )


def _by_interval() -> list[When]:
    """FASTER, SLOWER and SAME, from the certain interval: with few rounds it is wider than the stored one."""
    margin, low, high = F("measurement__margin"), F("speedup_low"), F("speedup_high")
    return [
        *_both(Verdict.FASTER, lambda wide: GreaterThan(wide(low), 1 + margin)),
        *_both(Verdict.SLOWER, lambda wide: LessThan(wide(high), 1.0 / (1 + margin))),
        *_both(
            Verdict.SAME,
            lambda wide: (
                Q(GreaterThanOrEqual(wide(low), 1 / (1 + MARGIN))) & Q(LessThanOrEqual(wide(high), 1 + MARGIN))
            ),
        ),
    ]


def _both(verdict: Verdict, holds: Any) -> list[When]:
    """holds: the condition, from a function that widens an end of the interval, or does not."""
    assert FEW_ROUNDS_WIDER == 2
    return [
        When(HAS_FEW & Q(holds(lambda end: end * end / F("speedup"))), then=Value(verdict)),
        When(~HAS_FEW & Q(holds(lambda end: end)), then=Value(verdict)),
    ]
