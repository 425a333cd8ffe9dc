"""The rule of change points, on series written by hand."""

import math
import random

import pytest

from kernels.analysis.changes import RULE, Change, Value, changes, compare


def series(*levels, seed=1, sd=0.002, own=0.001, noise=None):
    """Values of (level, runs), with this spread between runs and this spread of their own intervals."""
    more = random.Random(seed)
    draw = noise or (lambda: more.gauss(0, sd))
    times = [level * math.exp(draw()) for level, runs in levels for _ in range(runs)]
    return [Value(time, time * math.exp(-2.5758 * own), time * math.exp(2.5758 * own)) for time in times]


def test_a_step_is_found_where_it_is():
    (found,) = changes(series((18.72, 30), (19.48, 20)))
    assert (found.index, found.verdict, found.before, found.after) == (30, Change.REGRESSION, 24, 12)
    assert found.ratio == pytest.approx(19.48 / 18.72, abs=0.002)
    assert found.low < 19.48 / 18.72 < found.high and found.t > 7
    assert found.level_before == pytest.approx(18.72, rel=0.002)


def test_a_faster_kernel_is_an_improvement():
    (found,) = changes(series((20.0, 20), (15.0, 12)))
    assert (found.index, found.verdict) == (20, Change.IMPROVEMENT)


def test_t_by_hand():
    """Eight runs a side, equal within a side but for two: weights (24 - k) / 24 before, (12 - k) / 12 after."""
    values = series((10.0, 8), (11.0, 8), sd=0, own=0.01)
    test = compare(values, 8)
    weights = [[(n - k) / n for k in range(8)] for n in (24, 12)]
    error = math.hypot(*(0.01 * math.sqrt(sum(w * w for w in side)) / sum(side) for side in weights))
    assert test.t == pytest.approx(math.log(1.1) / error)
    assert test.ratio == pytest.approx(1.1)


def test_one_outlier_is_no_change():
    values = series((10.0, 40))
    values[20] = Value(20.0, 19.9, 20.1)
    assert changes(values) == []


@pytest.mark.parametrize("outlier", [{33: 14.0}, {24: 14.0}, {33: 7.0}, {28: 11.0}, {24: 14.0, 33: 7.0}])
def test_an_outlier_hides_no_change(outlier):
    """Of the runs beside a step of 4%. Without clipping t falls from 60 to 5 and less."""
    values = series((10.0, 30), (10.4, 30))
    for index, time in outlier.items():
        values[index] = Value(time, time * 0.999, time * 1.001)
    (found,) = changes(values)
    assert (found.index, found.verdict) == (30, Change.REGRESSION)
    assert found.ratio == pytest.approx(1.04, abs=0.004)


def test_heavy_tails_hide_no_change():
    """Noise of Student's t with 2 degrees of freedom, 0.5%: 190 of 200 steps of 4% are found, and where they are."""
    found = 0
    for seed in range(200):
        more = random.Random(seed)

        def noise(more=more):
            return 0.005 * more.gauss(0, 1) / math.sqrt(more.gammavariate(1, 1))

        steps = changes(series((10.0, 40), (10.4, 20), noise=noise))
        found += [one.verdict for one in steps if abs(one.index - 40) <= 1] == [Change.REGRESSION]
    assert found >= 190


def test_two_outliers_in_a_row_are_no_change():
    values = series((10.0, 40))
    values[20] = values[21] = Value(12.0, 11.9, 12.1)
    assert changes(values) == []


def test_a_step_of_1_5_percent_is_no_change_and_said_to_be_none():
    values = series((10.0, 24), (10.15, 12))
    assert changes(values) == []
    assert compare(values, 24).verdict == Change.NONE


def test_what_could_not_tell_is_not_called_no_change():
    values = series((10.0, 24), (10.0, 12), sd=0.2)
    test = compare(values, 24)
    assert test.verdict == Change.UNKNOWN and test.high - test.low > 0.04


def test_two_percent_that_is_not_certain_is_suspicious():
    values = series((10.0, 24), (10.5, 12), sd=0.03, seed=3)
    test = compare(values, 24)
    assert (test.verdict, 3 <= test.t < 7) == (Change.SUSPICIOUS, True)
    assert changes(values) == []


@pytest.mark.parametrize(("before", "after"), [(7, 12), (24, 7), (0, 40)])
def test_few_runs_are_insufficient_data(before, after):
    values = series((10.0, before), (20.0, after))
    test = compare(values, before)
    assert (test.verdict, test.before, test.after) == (Change.UNKNOWN, min(before, 24), min(after, 12))
    assert test.ratio is None and test.t is None


def test_a_young_series_needs_eight_runs_on_a_side():
    (found,) = changes(series((10.0, 8), (11.0, 8)))
    assert (found.index, found.before, found.after) == (8, 8, 8)


def test_two_steps_are_two_changes_and_no_window_reaches_across():
    first, second = changes(series((10.0, 24), (10.5, 10), (11.5, 12)))
    assert [first.index, second.index] == [24, 34]
    assert (first.after, second.before) == (10, 10)
    assert second.level_before == pytest.approx(10.5, rel=0.003)


def test_a_step_back_is_an_improvement():
    assert [(one.index, one.verdict) for one in changes(series((10.0, 20), (10.6, 15), (10.0, 15)))] == [
        (20, Change.REGRESSION),
        (35, Change.IMPROVEMENT),
    ]


def test_a_level_that_somebody_began_is_not_compared_with_what_was_before():
    values = series((10.0, 24), (11.0, 24))
    assert changes(values, levels=[24]) == []
    assert [one.index for one in changes(values)] == [24]


def test_a_slow_drift_is_a_regression_sooner_or_later():
    """0.3% a run: no step anywhere, and after 40 runs 13% slower."""
    values = series(*((10.0 * 1.003**number, 1) for number in range(60)), sd=0.001)
    found = changes(values)
    assert found and {one.verdict for one in found} == {Change.REGRESSION}


def test_runs_that_agree_by_chance_are_not_certain():
    """Equal times with intervals of 5%: the spread is not taken for zero."""
    values = series((10.0, 12), sd=0, own=0.02) + series((10.25, 12), sd=0, own=0.02)
    assert compare(values, 12).t < 7


def heavy(seed):
    more = random.Random(seed)
    return lambda: 0.002 * more.gauss(0, 1) / max(0.2, math.sqrt(more.gammavariate(1.0, 1.0)))


@pytest.mark.parametrize("kind", ["normal", "heavy tails"])
def test_false_alarms_are_rare(kind):
    """200 series of 100 runs at one level."""
    alarms = 0
    for seed in range(200):
        noise = heavy(seed) if kind == "heavy tails" else None
        alarms += len(changes(series((10.0, 100), seed=seed, sd=0.01, noise=noise)))
    assert alarms <= 2


@pytest.mark.parametrize("seed", range(40))
def test_a_large_step_is_always_found_within_a_run_of_its_place(seed):
    more = random.Random(seed)
    before, after, factor = more.randint(8, 40), more.randint(12, 30), more.uniform(0.7, 0.95)
    found = changes(series((10.0, before), (10.0 * factor, after), seed=seed))
    assert [one.verdict for one in found] == [Change.IMPROVEMENT]
    assert abs(found[0].index - before) <= 1


@pytest.mark.parametrize("seed", range(40))
def test_any_series_has_an_answer(seed):
    more = random.Random(seed)
    times = [math.exp(more.uniform(-3, 5)) for _ in range(more.randint(0, 60))]
    for one in changes([Value(time, time * 0.99, time * 1.01) for time in times]):
        assert one.is_change and RULE.least <= one.index <= len(times) - RULE.least
        assert one.low <= one.ratio <= one.high


@pytest.mark.parametrize("bad", [(0, 1, 1), (1, math.nan, 1), (1, 1, math.inf), (-1, 1, 1)])
def test_what_is_no_time_is_refused(bad):
    with pytest.raises(ValueError, match="not a time with an interval"):
        Value(*bad)


def test_an_index_outside_is_refused():
    with pytest.raises(ValueError, match="not in"):
        compare(series((10.0, 20)), 21)
