"""The estimators against SciPy, closed forms and sums done by hand: code and theory that know nothing of ours."""

import itertools
import math

import numpy as np
import pytest
from scipy import signal, stats

from kernels.analysis import statistics
from kernels.analysis.statistics import (
    CONFIDENCE,
    autocorrelation_time,
    change,
    effective_sample_size,
    paired_speedup,
)

SIZES = range(5, 41)
CASES = 6
"""Of each size: two each of noise that is normal, has long tails, or leans to one side."""
ALPHA = 1 - CONFIDENCE
HAIR = 1e-9
"""Far less than what lies between two means of pairs, far more than rounding."""


def log_ratios(n):
    """`CASES` rows of n log ratios, no two alike."""
    rng = np.random.default_rng(n)
    normal, tails = rng.normal(0.1, 0.02, (2, n)), 0.02 * rng.standard_t(2, (2, n))
    return np.concatenate([normal, tails, 0.05 * rng.exponential(size=(2, n))])


def speedup(logs):
    """(estimate, low, high), as logarithms: our answer for times whose log ratios these are."""
    baseline = 100.0 + np.arange(len(logs))  # which times they are of must not matter
    return np.log(paired_speedup(baseline, baseline / np.exp(logs)))


def walsh_averages(logs):
    return sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(logs, 2))


def p_values(logs, shifts):
    """SciPy's two-sided exact signed-rank test of each row, moved by its shift."""
    return stats.wilcoxon(logs - shifts[:, None], axis=1, method="exact").pvalue


@pytest.fixture
def independent(monkeypatch):
    """No interval is widened for rounds that hang together; what that does is tested by itself."""
    monkeypatch.setattr(statistics, "autocorrelation_time", lambda values: 1.0)


# --- Hodges and Lehmann's estimate ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
def test_the_ratio_is_the_median_of_the_walsh_averages(n):
    for logs in log_ratios(n):
        assert speedup(logs)[0] == pytest.approx(np.median(walsh_averages(logs)), abs=1e-12)


@pytest.mark.parametrize("n", SIZES)
def test_moved_by_the_ratio_scipys_signed_rank_statistic_is_in_balance(n):
    """Hodges and Lehmann's definition: the shift at which half of all signed ranks are positive."""
    half = n * (n + 1) / 4
    for logs in log_ratios(n):
        middle = speedup(logs)[0]
        before, behind = (
            stats.wilcoxon(logs - shift, alternative="greater", method="exact").statistic
            for shift in (middle - HAIR, middle + HAIR)
        )
        assert behind <= half <= before
        assert before - behind <= 2, "no more than the averages that meet there"


# --- the signed-rank interval -----------------------------------------------------------------------------------------


def inverted(logs, inside, outside):
    """Where SciPy's test begins to reject: bisection over shifts between one that it accepts and one that it rejects."""
    for _ in range(60):
        middle = (inside + outside) / 2
        accepted = p_values(logs, middle) > ALPHA
        inside, outside = np.where(accepted, middle, inside), np.where(accepted, outside, middle)
    return (inside + outside) / 2


@pytest.mark.parametrize("n", [n for n in SIZES if n >= 8])
def test_the_interval_is_scipys_test_inverted(n, independent):
    """Never inside the exact one; outside by three means of pairs at most, as the normal approximation is cautious."""
    logs = log_ratios(n)
    middles, lows, highs = np.array([speedup(row) for row in logs]).T
    exact_lows = inverted(logs, middles, logs.min(axis=1) - 1)
    exact_highs = inverted(logs, middles, logs.max(axis=1) + 1)
    for row, low, high, exact_low, exact_high in zip(logs, lows, highs, exact_lows, exact_highs, strict=True):
        averages = np.array(walsh_averages(row))
        assert np.abs(averages - low).min() < HAIR and np.abs(averages - high).min() < HAIR
        cautious_low = np.searchsorted(averages, exact_low - HAIR) - np.searchsorted(averages, low - HAIR)
        cautious_high = np.searchsorted(averages, high + HAIR) - np.searchsorted(averages, exact_high + HAIR)
        assert cautious_low == cautious_high, "it leaves out as many at either end"
        assert 0 <= cautious_low <= 3


@pytest.mark.parametrize("n", SIZES)
def test_scipy_rejects_whatever_lies_outside_the_interval(n, independent):
    """So the interval holds the truth in 99% of all cases and more, wherever n is large enough for that."""
    logs = log_ratios(n)
    _, lows, highs = np.array([speedup(row) for row in logs]).T
    least = 2 / 2**n  # with so many rounds there is no smaller p-value
    for shifts in (lows - HAIR, highs + HAIR):
        assert (p_values(logs, shifts) <= max(ALPHA, least) + 1e-12).all()
    if least > ALPHA:
        assert lows == pytest.approx(logs.min(axis=1)) and highs == pytest.approx(logs.max(axis=1))
        assert n < statistics.MIN_ROUNDS, "from here on 99% can be had"
    else:
        assert n >= statistics.MIN_ROUNDS


# --- rounds that hang together ----------------------------------------------------------------------------------------


def geyers_time(values):
    """Geyer's initial monotone sequence on ranks, of SciPy's parts; autocorrelations are of a mean that is estimated."""
    ranks = stats.rankdata(values)
    n, ranks = len(ranks), ranks - ranks.mean()
    if not ranks.any():
        return 1.0
    covariances = signal.correlate(ranks, ranks, method="direct")[n - 1 :]
    correlations = covariances / covariances[0] + 1 / n
    correlations[0] = 1
    lags = max(1, n // 2)
    pairs = correlations[: lags - lags % 2].reshape(-1, 2).sum(axis=1)
    positive = pairs[: np.argmax(pairs <= 0)] if (pairs <= 0).any() else pairs
    return max(1.0, 2 * np.minimum.accumulate(positive).sum() - 1)


def autoregressive(rng, phi, n, series=1):
    """Rows of x(t) = phi x(t-1) + noise, which has forgotten how it began."""
    noise = rng.standard_normal((series, n + 500))
    return signal.lfilter([1.0], [1.0, -phi], noise, axis=1)[:, 500:]


@pytest.mark.parametrize("phi", (-0.5, 0.0, 0.4, 0.8))
@pytest.mark.parametrize("n", (5, 6, 7, 20, 41, 120))
def test_autocorrelation_time_is_geyers(n, phi):
    for values in autoregressive(np.random.default_rng(n), phi, n, series=20):
        for some in (values, values.round(), values[0] + 0 * values):
            assert autocorrelation_time(some) == pytest.approx(geyers_time(some), rel=1e-9)


@pytest.mark.parametrize("phi", (0.4, 0.8))
@pytest.mark.parametrize("n", (5, 12, 20, 40))
def test_the_interval_is_widened_by_the_square_root_of_that_time(n, phi, monkeypatch):
    """On both sides, and the estimate stays where it is."""
    rows = autoregressive(np.random.default_rng(n), phi, n, series=20)
    wide = np.array([speedup(logs) for logs in rows])
    monkeypatch.setattr(statistics, "autocorrelation_time", lambda values: 1.0)
    narrow = np.array([speedup(logs) for logs in rows])
    wider = np.sqrt([geyers_time(logs) for logs in rows])
    assert wide[:, 0] == pytest.approx(narrow[:, 0], abs=1e-12)
    for end in (1, 2):
        distances = wider * (narrow[:, end] - narrow[:, 0])
        assert wide[:, end] - wide[:, 0] == pytest.approx(distances, rel=1e-9)
    assert n < 20 or wider.max() > 1.2, "otherwise this tests nothing"


def time_of_ranks(phi):
    """Of a normal AR(1), in closed form: correlation r of values is 6/pi asin(r/2) of their ranks (Pearson, 1907)."""
    return 1 + 2 * sum(6 / math.pi * math.asin(phi**lag / 2) for lag in range(1, 500))


def bound(found, bias):
    """How far a mean may lie from the truth: four of its standard errors, and what the estimator is off in the long run."""
    return 4 * found.std(ddof=1) / math.sqrt(len(found)) + bias


BIAS = 0.04
"""Of Geyer's estimator, relative: it adds up the noise of correlations until that is negative, and it is never below 1."""
RANKS = 0.045
"""What ranks may take from the time of values."""


@pytest.mark.parametrize("phi", (0.0, 0.3, 0.5, 0.7, 0.9))
def test_autocorrelation_time_of_ar_1_is_its_closed_form(phi):
    """(1 + phi) / (1 - phi) of values; of ranks, which the estimator takes, a little less."""
    closed = (1 + phi) / (1 - phi)
    assert (1 - RANKS) * closed <= time_of_ranks(phi) <= closed
    rows = autoregressive(np.random.default_rng(int(10 * phi)), phi, n=4000, series=100)
    found = np.array([autocorrelation_time(values) for values in rows])
    assert abs(found.mean() - time_of_ranks(phi)) <= bound(found, BIAS * closed)
    assert abs(found.mean() - closed) <= bound(found, (BIAS + RANKS) * closed)


def test_neighbours_that_differ_count_for_no_more_than_independent_ones():
    """(1 + phi) / (1 - phi) is a third here: that is not believed of a device."""
    rows = autoregressive(np.random.default_rng(1), phi=-0.5, n=4000, series=20)
    assert {autocorrelation_time(values) for values in rows} == {1.0}


@pytest.mark.parametrize("phi", (0.3, 0.6))
def test_rounds_that_hang_together_count_as_ar_1_says(phi):
    n, expected = 4000, 4000 * (1 - phi) / (1 + phi)
    rows = autoregressive(np.random.default_rng(int(10 * phi)), phi, n, series=60)
    found = np.array([effective_sample_size(np.exp(0.01 * logs), np.ones(n)) for logs in rows])
    assert abs(found.mean() - expected) <= bound(found, (BIAS + RANKS) * expected)


# --- a speedup after over one before ----------------------------------------------------------------------------------


def test_a_change_is_what_comes_out_by_hand():
    """From 2 (1.6 to 2.5) to 3 (2.4 to 4.5): below it lie log 1.25 and log 1.25, above it log 1.5 and log 1.25."""
    ratio, low, high = change((2.0, 1.6, 2.5), (3.0, 2.4, 4.5))
    assert ratio == pytest.approx(1.5)
    assert low == pytest.approx(1.5 * 1.25 ** -math.sqrt(2)) == pytest.approx(1.09406, abs=1e-5)
    assert high == pytest.approx(1.5 * math.exp(math.hypot(0.4054651, 0.2231436))) == pytest.approx(2.38280, abs=1e-5)


def test_of_normal_intervals_a_change_has_the_interval_of_a_difference():
    """There MOVER is exact: variances of independent estimates add up."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        (was, now), errors = rng.normal(0, 0.5, 2), rng.uniform(0.001, 0.2, 2)
        before, after = (
            np.exp([at, *stats.norm.interval(CONFIDENCE, at, error)])
            for at, error in zip((was, now), errors, strict=True)
        )
        _, low, high = np.log(change(before, after))
        expected = stats.norm.interval(CONFIDENCE, now - was, math.sqrt((errors**2).sum()))
        assert (low, high) == pytest.approx(expected, abs=1e-12)


def test_of_lopsided_intervals_each_limit_of_a_change_meets_the_others_far_one():
    """Zou and Donner's limits of a difference, of two logarithms."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        (low_1, at_1, up_1), (low_2, at_2, up_2) = np.sort(rng.normal(0, 0.3, (2, 3)))
        found = change(np.exp((at_1, low_1, up_1)), np.exp((at_2, low_2, up_2)))
        low = at_2 - at_1 - ((at_2 - low_2) ** 2 + (up_1 - at_1) ** 2) ** 0.5
        high = at_2 - at_1 + ((up_2 - at_2) ** 2 + (at_1 - low_1) ** 2) ** 0.5
        assert np.log(found) == pytest.approx([at_2 - at_1, low, high], abs=1e-12)
