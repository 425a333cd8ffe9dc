"""Statistics against data whose truth is known: intervals cover it, planted differences are found, drift is not one."""

import math

import numpy as np
import pytest
from scipy import stats

from kernels.analysis import statistics
from kernels.analysis.statistics import (
    MARGIN,
    describe,
    half_width,
    margin_from,
    median_interval,
    paired_speedup,
    unpaired_speedup,
    word,
)
from kernels.contract.arm_result import Ratio, Verdict

FASTER, SLOWER, SAME, UNDECIDED = Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.UNDECIDED
NEEDS_MORE, UNPAIRED = Verdict.NEEDS_MORE, Verdict.UNPAIRED
ROUNDS = 20
DECIDED = (FASTER, SLOWER)


def drifting_rounds(rng, ratio=1.0, rounds=ROUNDS, drift=0.15):
    """(baseline, arm): one time per round of each. A GPU that warms up slows both alike, by `drift` from end to end."""
    common = 1 + np.linspace(0, drift, rounds) + 0.01 * rng.standard_normal(rounds)
    baseline = 100 * common * (1 + 0.002 * rng.standard_normal(rounds))
    return baseline, 100 / ratio * common * (1 + 0.002 * rng.standard_normal(rounds))


# --- describe ---------------------------------------------------------------------------------------------------------


def test_the_interval_of_a_p50_holds_it():
    """A p50 is of all samples, its interval of the medians of rounds: heaps within rounds part them."""
    medians = [36.0 + 0.01 * number for number in range(120)]
    low, high = statistics.median_interval(medians)
    assert statistics.p50_interval(36.6, medians) == (low, high)
    assert statistics.p50_interval(39.0, medians) == (low, 39.0)
    assert statistics.p50_interval(35.0, medians) == (35.0, high)


def test_describe_agrees_with_numpy():
    samples = np.random.default_rng(1).lognormal(size=501)
    found = describe(samples)
    assert found["n"] == 501
    assert found["mean"] == pytest.approx(np.mean(samples))
    assert found["std"] == pytest.approx(np.std(samples, ddof=1))
    assert (found["min"], found["max"]) == (min(samples), max(samples))
    for percent in (5, 25, 50, 75, 90, 95, 99):
        assert found[f"p{percent}"] == pytest.approx(np.percentile(samples, percent))
    assert found["iqr_over_median"] == pytest.approx((found["p75"] - found["p25"]) / found["p50"])


def test_outliers_are_counted_and_kept():
    quiet = [10.0, 10.1, 10.2, 10.3, 10.4] * 20
    assert describe(quiet)["outliers"] == 0
    found = describe([*quiet, 50.0, 99.0])
    assert (found["n"], found["outliers"], found["max"]) == (102, 2, 99.0)


def test_one_sample_has_no_spread():
    found = describe([3.0])
    assert (found["n"], found["std"], found["p5"], found["p99"], found["iqr_over_median"]) == (1, 0, 3, 3, 0)


def test_statistics_are_plain_numbers_for_json():
    assert {type(value) for value in describe(np.arange(9.0)).values()} == {int, float}


# --- the interval of a median -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", (20, 35, 60))
@pytest.mark.parametrize("skewed", (False, True))
def test_the_interval_of_a_median_covers_it_as_often_as_it_says(count, skewed):
    rng = np.random.default_rng(2)
    truth = math.exp(0.0) if skewed else 0.0
    draws = rng.standard_normal((2000, count))
    draws = np.exp(draws) if skewed else draws
    covered = sum(low <= truth <= high for low, high in map(median_interval, draws))
    assert 0.985 <= covered / 2000 <= 1.0, "99% nominal; it may be cautious, not bold"


def test_an_interval_is_narrower_for_less_confidence_and_more_samples():
    samples = list(range(60))

    def width(*args):
        low, high = median_interval(*args)
        return high - low

    assert width(samples, 0.9) < width(samples, 0.99) < width(samples, 0.9999)
    assert width(samples) / 60 < width(samples[:30]) / 30


def test_the_interval_of_few_samples_is_their_whole_range():
    assert median_interval([5.0]) == (5.0, 5.0)
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert median_interval([7, 1, 6, 2, 5, 3, 4]) == (1, 7), "2 x 0.5^7 is 1.6%: not even the extremes reach 99%"
    assert median_interval(range(1, 10)) == (1, 9)


def test_the_interval_is_that_of_a_binomial():
    """The k-th smallest of n lies above the median with probability P(Bin(n, 1/2) < k)."""
    for count in range(8, 61):
        low, high = median_interval(range(count))
        assert low + high == count - 1, "symmetric"

        def outside(ranks, count=count):
            return 2 * sum(math.comb(count, k) for k in range(ranks)) / 2**count

        assert outside(low + 1) <= 0.01 or low == 0
        assert outside(low + 2) > 0.01, "the next narrower one would be too bold"


# --- speedups ---------------------------------------------------------------------------------------------------------


def test_a_planted_difference_is_found_under_drift_by_pairs_and_not_without():
    rng = np.random.default_rng(3)
    found = [paired_speedup(*drifting_rounds(rng, ratio=1.03)) for _ in range(100)]
    assert all(word(low, high, MARGIN, ROUNDS) == FASTER for _, low, high in found)
    assert all(abs(ratio - 1.03) < 0.005 for ratio, _, _ in found)
    covered = sum(low <= 1.03 <= high for _, low, high in found)
    assert covered >= 96
    loose = [unpaired_speedup(*drifting_rounds(rng, ratio=1.03), seed) for seed in range(20)]
    assert all(low < 1 / 1.01 and high > 1.03 for _, low, high in loose), "drift of 15% hides 3%"


def test_one_after_the_other_turns_drift_into_a_difference():
    """The same kernel twice, the second time on a warmer GPU: why `fixed` gives no word."""
    rng = np.random.default_rng(4)
    wrong = 0
    for seed in range(20):
        first, second = np.split(drifting_rounds(rng, rounds=2 * ROUNDS)[0], 2)
        _, low, high = unpaired_speedup(first, second, seed)
        wrong += high < 1 / 1.01 or low > 1.01
        assert word(low, high, MARGIN, 2 * ROUNDS, paired=False) == UNPAIRED
    assert wrong == 20


@pytest.mark.parametrize("drift", (0.0, 0.15))
def test_the_same_kernel_is_never_called_faster_or_slower_than_itself(drift):
    rng = np.random.default_rng(5)
    words = []
    for _ in range(200):
        _, low, high = paired_speedup(*drifting_rounds(rng, drift=drift))
        words.append(word(low, high, MARGIN, ROUNDS))
    assert not set(words) & set(DECIDED)
    assert words.count(SAME) > 190


def test_noise_that_hides_the_truth_is_undecided():
    rng = np.random.default_rng(6)
    for _ in range(20):
        base, arm = (100 * (1 + 0.2 * rng.standard_normal(ROUNDS)) for _ in range(2))
        _, low, high = paired_speedup(base, arm)
        assert word(low, high, MARGIN, ROUNDS) == UNDECIDED


def test_one_round_gone_wrong_does_not_move_a_ratio():
    base, arm = drifting_rounds(np.random.default_rng(7), ratio=1.1)
    before = paired_speedup(base, arm)[0]
    arm[3] *= 40
    assert paired_speedup(base, arm)[0] == pytest.approx(before, rel=0.003)


@pytest.mark.parametrize("rounds", (20, 60, 120))
@pytest.mark.parametrize("shape", ("normal", "two heaps", "long tails"))
def test_the_interval_of_a_ratio_covers_it_as_often_as_it_says(rounds, shape):
    rng = np.random.default_rng(9)
    draws = {
        "normal": lambda: rng.standard_normal(rounds),
        "two heaps": lambda: rng.choice((-1.0, 1.0), rounds) + 0.1 * rng.standard_normal(rounds),
        "long tails": lambda: rng.standard_t(2, rounds),
    }[shape]
    found = [paired_speedup(100 * np.exp(0.01 * draws()), np.full(rounds, 80.0)) for _ in range(600)]
    covered = sum(low <= 1.25 <= high for _, low, high in found) / 600
    assert covered >= 0.98, "99% nominal"


def hanging_together(rng, rounds, memory):
    """Noise that keeps a share of its last value."""
    values = rng.standard_normal(rounds)
    for i in range(1, rounds):
        values[i] = memory * values[i - 1] + math.sqrt(1 - memory**2) * values[i]
    return values


@pytest.mark.parametrize("rounds, memory", [(120, 0.6), (40, 0.4), (40, 0.6)])
def test_an_interval_knows_of_rounds_that_hang_together(rounds, memory, monkeypatch):
    """As those of graphs do on an H200: neighbours are alike."""
    rng = np.random.default_rng(10)
    draws = [100 * np.exp(0.01 * hanging_together(rng, rounds, memory)) for _ in range(400)]

    def covered():
        found = [paired_speedup(base, np.full(rounds, 80.0)) for base in draws]
        return sum(low <= 1.25 <= high for _, low, high in found) / 400

    assert covered() >= 0.94
    monkeypatch.setattr(statistics, "autocorrelation_time", lambda values: 1.0)
    assert covered() < 0.93, "otherwise this tests nothing"


def test_autocorrelation_time_is_what_theory_says():
    """(1 + a) / (1 - a) for noise that keeps the share a of its last value."""
    rng = np.random.default_rng(11)

    def found(rounds, memory):
        times = [statistics.autocorrelation_time(hanging_together(rng, rounds, memory)) for _ in range(200)]
        return np.median(times)

    assert found(1000, 0.0) == pytest.approx(1, rel=0.15)
    assert found(1000, 0.5) == pytest.approx(3, rel=0.15)
    assert found(1000, 0.8) == pytest.approx(9, rel=0.15)
    assert found(20, 0.0) < 1.5, "independent rounds must not cost much"


def test_rounds_that_hang_together_count_for_less():
    rng = np.random.default_rng(13)
    base, arm = 100 * np.exp(0.01 * hanging_together(rng, 200, memory=0.6)), np.full(200, 80.0)
    assert 30 < statistics.effective_sample_size(base, arm) < 80, "of 200, theory says 50"
    assert statistics.effective_sample_size(base[:1], arm[:1]) == 1


def test_autocorrelation_time_of_equal_few_and_wild_values():
    time = statistics.autocorrelation_time
    assert [time(values) for values in ([1.0], [1.0, 2.0], [5.0] * 30, [1.0, 2.0] * 15)] == [1, 1, 1, 1]
    assert time([1.0] * 15 + [2.0] * 15) > 5
    rng = np.random.default_rng(12)
    steady = hanging_together(rng, 200, memory=0.6)
    wild = steady.copy()
    wild[[20, 90]] = 1e6
    assert time(wild) == pytest.approx(time(steady), rel=0.3)


def test_rounds_in_two_heaps_do_not_tear_a_ratio_to_one_of_them():
    """Short graphs read so, a capture for each round. Their median would be of the heap that has one round more."""
    base = [100.0] * 11 + [102.0] * 9
    assert paired_speedup(base, [100.0] * 20)[0] == pytest.approx(1.01, abs=1e-3)
    assert np.median(base) == 100


def test_the_interval_is_that_of_the_signed_ranks():
    """Left out at either end, of the sorted means of pairs: as many as the exact test allows, or a few less."""
    for n in range(5, 41):
        counts = np.zeros(n * (n + 1) // 2 + 1)
        counts[0] = 1
        for rank in range(1, n + 1):
            counts[rank:] += counts[:-rank].copy()
        below = np.cumsum(counts) / 2**n
        exact = max(0, int(np.searchsorted(below, 0.005, side="right")) - 1)
        assert exact - 3 <= statistics.signed_rank_skip(n) <= exact, n


def test_a_speedup_turns_over_with_its_sides():
    base, arm = drifting_rounds(np.random.default_rng(8), ratio=1.5)
    ratio, low, high = paired_speedup(base, arm)
    other, other_low, other_high = paired_speedup(arm, base)
    assert (other, other_low, other_high) == pytest.approx((1 / ratio, 1 / high, 1 / low), rel=1e-9)
    assert half_width(low, high) == pytest.approx((high / low) ** 0.5 - 1, rel=1e-2)


# --- words ------------------------------------------------------------------------------------------------------------

M = 0.01


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (1.0101, 1.2, FASTER),
        (1.01, 1.2, UNDECIDED),
        (0.8, 1 / 1.0101, SLOWER),
        (0.8, 1 / 1.01, UNDECIDED),
        (1 / 1.01, 1.01, SAME),
        (1 / 1.0101, 1.01, UNDECIDED),
        (1 / 1.01, 1.0101, UNDECIDED),
        (0.5, 2.0, UNDECIDED),
        (1.0, 1.0, SAME),
        (None, None, ""),
    ],
)
def test_a_word_is_said_only_where_the_whole_interval_says_it(low, high, expected):
    assert word(low, high, M, ROUNDS) == expected


def test_fewer_than_eight_rounds_need_more_runs():
    """The range of seven covers 98.4%, that of eight 99.2%."""
    assert word(1.9, 2.1, M, 7) == NEEDS_MORE == "needs more rounds"
    assert word(1.9, 2.1, M, 8) == FASTER


def test_what_was_not_paired_gets_no_word():
    assert word(1.9, 2.1, M, 500, paired=False) == UNPAIRED
    assert word(None, None, M, 500, paired=False) == ""


def test_a_baseline_that_differs_from_itself_widens_the_margin():
    assert margin_from(None) == MARGIN == 0.01
    assert margin_from((1.004, 0.998, 1.009)) == MARGIN
    assert margin_from((1.006, 1.0, 1.008)) == pytest.approx(2 * 0.008), "0.6% off"
    assert margin_from((0.994, 0.992, 0.999)) == pytest.approx(2 * 0.008)
    assert margin_from((1.001, 0.98, 1.009)) == pytest.approx(2 * 0.02), "its interval leaves the margin"
    assert margin_from((1.02, 1.01, 1.03)) == pytest.approx(0.06)


def test_noise_widens_what_faster_and_slower_need_and_never_what_is_the_same():
    margin = margin_from((1.01, 1.005, 1.015))
    assert margin == pytest.approx(0.03)
    assert word(1.01, 1.02, margin, ROUNDS) == UNDECIDED, "2% is not the same"
    assert word(1.02, 1.04, margin, ROUNDS) == UNDECIDED
    assert (word(1.031, 1.04, margin, ROUNDS), word(0.9, 0.97, margin, ROUNDS)) == (FASTER, SLOWER)
    assert word(0.995, 1.005, margin, ROUNDS) == SAME


@pytest.mark.parametrize("ratio", [(3.5, 4.0), (0.1, 0.2), (0.999, 1.001), (0.5, 1.9)])
def test_above_a_margin_of_5_percent_nothing_is_decided(ratio):
    """A baseline that differs from itself by half leaves room for everything: that is no answer."""
    assert word(*ratio, margin_from((1.0, 0.5, 2.0)), ROUNDS) == UNDECIDED
    assert word(*ratio, 0.0501, ROUNDS) == UNDECIDED
    assert word(*ratio, 0.05, ROUNDS) == (UNDECIDED if ratio == (0.5, 1.9) else word(*ratio, M, ROUNDS))


# --- many ratios ------------------------------------------------------------------------------------------------------


def test_a_geometric_mean_has_an_interval_in_quadrature():
    assert statistics.geometric_mean([]) is None
    one = Ratio(1.2, 1.1, 1.3)
    assert statistics.geometric_mean([one]) == pytest.approx(one)
    four = statistics.geometric_mean([Ratio(2.0, 1.9, 2.1), Ratio(0.5, 0.475, 0.525)] * 2)
    assert four.ratio == pytest.approx(1.0)
    assert math.log(four.low) == pytest.approx(-math.sqrt(4) * math.log(2 / 1.9) / 4)
    assert math.log(four.high) == pytest.approx(math.sqrt(4) * math.log(2.1 / 2) / 4)


def test_the_interval_of_a_mean_covers_it_as_often_as_it_says():
    """The workloads are fixed: what varies are the rounds on each."""
    rng, covered, true = np.random.default_rng(14), 0, np.array([0.8, 1.0, 1.1, 1.5])
    for _ in range(500):
        ratios = [
            Ratio(*paired_speedup(100 * t * np.exp(0.01 * rng.standard_normal(30)), np.full(30, 100.0))) for t in true
        ]
        mean = statistics.geometric_mean(ratios)
        covered += mean.low <= np.exp(np.log(true).mean()) <= mean.high
    assert covered >= 0.98 * 500


def test_students_quantile_is_scipys():
    for freedom in (4, 7, 11, 19, 39, 119):
        for comparisons in (1, 2, 8, 84, 500):
            exact = stats.t.ppf(1 - 0.005 / comparisons, freedom)
            near = statistics.t_quantile(1 - 0.005 / comparisons, freedom)
            assert near == pytest.approx(exact, rel=0.12 if freedom < 7 else 0.03), (freedom, comparisons)


def test_an_interval_for_many_comparisons_is_wider_and_holds_for_all():
    rng, ratio = np.random.default_rng(15), Ratio(1.2, 1.19, 1.21)
    assert statistics.for_many(ratio, 1, 40) == pytest.approx(ratio)
    widths = [half_width(*statistics.for_many(ratio, k, 40)[1:]) for k in (1, 2, 8, 84)]
    assert widths == sorted(widths)
    assert widths[3] / widths[0] == pytest.approx(stats.t.ppf(1 - 0.005 / 84, 39) / stats.t.ppf(0.995, 39), rel=0.01)
    missed = 0
    for _ in range(150):
        rows = np.exp(0.01 * rng.standard_normal((30, 20)))
        intervals = [statistics.for_many(Ratio(*paired_speedup(row, np.ones(20))), 30, 20) for row in rows]
        missed += any(not one.low <= 1 <= one.high for one in intervals)
    assert missed <= 6, "1% nominal, for all 30 together; alone, one of 30 would miss in a quarter of all cases"


def test_the_figures_are_those_that_the_pages_name():
    assert (statistics.CONFIDENCE, statistics.RESAMPLES, statistics.MIN_ROUNDS) == (0.99, 2000, 8)


def test_an_unpaired_ratio_lies_in_its_interval_whatever_the_samples(monkeypatch):
    """The contract refuses any other, and a run would end by it."""
    monkeypatch.setattr(statistics, "_resampled_medians", lambda values, rng: np.full(10, values.max()))
    ratio, low, high = statistics.unpaired_speedup([1.0, 1.0, 8.0], [1.0, 1.0, 1.0], seed=1)
    assert low <= ratio <= high
