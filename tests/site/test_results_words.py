"""The word that the database says of a result is the one that is made when the result is read."""

import itertools

import pytest

from kernels.contract.arm_result import Status, Verdict
from runs.models import Measurement, Result
from runs.queries import measurements
from runs.queries.words import word

SPEEDUPS = ((1.5, 1.4, 1.6), (1.03, 1.005, 1.05), (1.0, 0.995, 1.004), (0.7, 0.6, 0.8), (1.0, 0.9, 1.1), (None,) * 3)


def both(pk):
    """(what the database says, what is said when it is read)."""
    said = Result.objects.annotate(word=word()).values_list("word", flat=True).get(pk=pk)
    key = Result.objects.values_list("measurement", flat=True).get(pk=pk)
    return said, str(measurements.with_baselines([pk], [key])[pk][2].verdict)


def test_on_a_stored_run(demo):
    for result in Result.objects.filter(measurement__run=demo):
        assert len(set(both(result.pk))) == 1


@pytest.mark.parametrize("rounds,left", [(20, None), (5, None), (5, 3), (4, None), (None, None), (8, 0)])
def test_over_intervals_rounds_and_margins(demo, rounds, left):
    result = Result.objects.filter(kernel__name="triton-flash").first()
    seen = set()
    for speedups, margin, paired in itertools.product(SPEEDUPS, (0.01, 0.04, 0.2), (True, False)):
        speedup, low, high = speedups
        Measurement.objects.filter(pk=result.measurement_id).update(margin=margin)
        Result.objects.filter(pk=result.pk).update(
            speedup=speedup, speedup_low=low, speedup_high=high, paired=paired, rounds=rounds, left_after_round=left
        )
        database, read = both(result.pk)
        assert database == read, (speedups, margin, paired)
        seen.add(read)
    assert len(seen) >= 3


@pytest.mark.parametrize("change", [
    {"status": Status.SUSPECT}, {"p50_ms": None}, {"correctness": {"correct": None}}, {"correctness": {"correct": False}},
    {"p50_ms": None, "correctness": None}, {"correctness": {"correct": None}, "speedup": None},
    {"other_work": "reads nothing"}, {"other_work": "reads nothing", "correctness": {"correct": None}},
    {"other_work": "reads nothing", "p50_ms": None}, {"other_work": "reads nothing", "p50_ms": None, "correctness": None},
    {"other_work": "reads nothing", "status": Status.SUSPECT},
])  # fmt: skip
def test_of_what_has_no_verdict(demo, change):
    result = Result.objects.filter(kernel__name="triton-flash").first()
    Result.objects.filter(pk=result.pk).update(**change)
    assert len(set(both(result.pk))) == 1


def test_over_a_baseline_that_is_not_ok(demo):
    result = Result.objects.filter(kernel__name="triton-flash").first()
    Result.objects.filter(measurement=result.measurement, kernel__name="sdpa").update(status=Status.INCORRECT)
    assert both(result.pk) == (Verdict.NONE, Verdict.NONE)
    Result.objects.filter(pk=result.pk).update(rounds=4)
    assert both(result.pk) == (Verdict.NEEDS_MORE, Verdict.NEEDS_MORE)


def test_too_short_to_tell(demo):
    result = Result.objects.filter(kernel__name="triton-flash").first()
    Measurement.objects.filter(pk=result.measurement_id).update(isolated=True)
    Result.objects.filter(pk=result.pk).update(why=f"{Verdict.TOO_SHORT}: so")
    assert both(result.pk) == (Verdict.TOO_SHORT, Verdict.TOO_SHORT)
