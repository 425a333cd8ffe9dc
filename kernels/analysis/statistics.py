"""Statistics of samples: pure functions, no device. Times in and out are in the caller's unit; ratios have none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from statistics import NormalDist

import numpy as np

from kernels.contract.arm_result import Ratio, Verdict

CONFIDENCE = 0.99
"""Nominal coverage of intervals."""
RESAMPLES = 2000
"""Bootstrap resamples for unpaired ratios."""
MARGIN = 0.01
"""Within this a result is SAME. FASTER and SLOWER need at least this difference."""
AA_TOLERANCE = 0.005
"""A/A further from 1 than this widens the margin of its workload."""
WIDEST_MARGIN = 0.05
"""Above this margin nothing is FASTER, SLOWER or SAME, and no mean includes it: A/A was too far off."""
MIN_ROUNDS = 8
"""Fewest rounds for a word. Below this n the interval is the range of all rounds, whose coverage 1 - 2^(1 - n) is
less than 99%."""
FEWEST_ROUNDS = 5
"""Fewest rounds for a ratio. The range of four normal values contains their mean in 87.5% of all cases, that of one in none."""
FEW_ROUNDS_WIDER = 2.0
"""Factor on the range of five to seven rounds. The range of five normal values contains their mean in 94% of all
cases; Student's 99% interval is 1.8 times as wide."""
PERCENTILES = (5, 25, 50, 75, 90, 95, 99)


def as_margin(margin: float, digits: int = 1) -> str:
    """A margin in percent: "13.8%"; above 100% it says no more than that."""
    return f"{margin:.{digits}%}" if margin <= 1 else "above 100%"


def describe(samples: Sequence[float]) -> dict[str, float]:
    """n, mean, std, min, max, p5 to p99, iqr_over_median, and outliers (beyond Q3 + 3 IQR; they are kept)."""
    values = np.asarray(samples, dtype=float)
    stats: dict[str, float] = {
        "n": len(values),
        "mean": float(values.mean()),
        "std": float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        "min": float(values.min()),
        "max": float(values.max()),
    }
    stats |= {f"p{p}": float(v) for p, v in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True)}
    iqr = stats["p75"] - stats["p25"]
    stats["iqr_over_median"] = iqr / stats["p50"] if stats["p50"] else 0.0
    stats["outliers"] = int((values > stats["p75"] + 3 * iqr).sum())
    return stats


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Distribution-free interval of a median, from order statistics (binomial). The full range if n is too small."""
    values = sorted(samples)
    n, tail, below = len(values), (1 - confidence) / 2, 0.0
    skip = 0
    for k in range(n // 2):
        below += math.comb(n, k) * 0.5**n
        if below > tail:
            break
        skip = k
    return values[skip], values[n - 1 - skip]


def p50_interval(p50: float, medians: Sequence[float]) -> tuple[float, float]:
    """Interval of the p50 of all samples, from the medians of rounds: samples of one round are alike, rounds are not.
    It always includes the p50, which may lie outside the rounds' medians."""
    low, high = median_interval(medians)
    return min(low, p50), max(high, p50)


def paired_speedup(baseline: Sequence[float], arm: Sequence[float]) -> tuple[float, float, float]:
    """(ratio, low, high) of baseline time over arm time, from one number per round and arm, in the order of the rounds.

    The ratio is exp of the Hodges-Lehmann estimate of the log-ratios within rounds: the median of all pairwise means.
    It is robust (a quarter of the rounds may be wrong), and steadier than the median when rounds form two clusters, as
    those of short graphs do. The interval is that of Wilcoxon's signed-rank test: no resampling; it assumes only that
    the log-ratios are symmetric. Autocorrelated rounds widen it: see `autocorrelation_time`.
    """
    logs = _log_ratios(baseline, arm)
    first, second = np.triu_indices(len(logs))
    means = np.sort((logs[first] + logs[second]) / 2)
    skip, middle = signed_rank_skip(len(logs)), np.median(means)
    wider = math.sqrt(autocorrelation_time(logs))
    low, high = (middle + wider * (means[end] - middle) for end in (skip, -1 - skip))
    return float(np.exp(middle)), float(np.exp(low)), float(np.exp(high))


def effective_sample_size(baseline: Sequence[float], arm: Sequence[float]) -> float:
    """Effective sample size of the paired log-ratios."""
    return len(arm) / autocorrelation_time(_log_ratios(baseline, arm))


def _log_ratios(baseline: Sequence[float], arm: Sequence[float]) -> np.ndarray:
    return np.log(np.asarray(baseline, dtype=float) / np.asarray(arm, dtype=float))


def autocorrelation_time(values: Sequence[float] | np.ndarray) -> float:
    """Integrated autocorrelation time of values in measured order, at least 1. Neighbours are alike when a graph's
    memory placement cycles or a clock hops.

    Geyer's initial monotone sequence estimator (Statistical Science 7, 1992), on ranks, so that one outlier does not
    hide the correlation.
    """
    ranks = _ranks(np.asarray(values, dtype=float))
    ranks -= ranks.mean()
    n, variance = len(ranks), float(ranks @ ranks)
    if variance == 0:
        return 1.0
    # Independent values have a mean correlation of -1/n, not 0.
    correlations = [1.0] + [float(ranks[:-lag] @ ranks[lag:]) / variance + 1 / n for lag in range(1, n // 2)]
    total, smallest = -1.0, math.inf
    for even, odd in zip(correlations[::2], correlations[1::2], strict=False):
        smallest = min(smallest, even + odd)
        if smallest <= 0:
            break
        total += 2 * smallest
    return max(1.0, total)


def _ranks(values: np.ndarray) -> np.ndarray:
    """0 to n - 1 in ascending order; ties share their mean rank."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts + 1) / 2)[which]


def signed_rank_skip(n: int, confidence: float = CONFIDENCE) -> int:
    """Walsh averages to drop at each end for the interval (normal approximation, slightly conservative). 0: the full
    range."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    mean, deviation = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return max(0, math.floor(mean - z * deviation - 0.5))


def unpaired_speedup(baseline: Sequence[float], arm: Sequence[float], seed: int) -> tuple[float, float, float]:
    """(ratio, low, high) of medians of two sets measured one after the other. The interval does not include drift."""
    rng = np.random.default_rng(seed)
    base, new = np.asarray(baseline, dtype=float), np.asarray(arm, dtype=float)
    ratios = _resampled_medians(base, rng) / _resampled_medians(new, rng)
    low, high = np.percentile(ratios, [50 * (1 - CONFIDENCE), 100 - 50 * (1 - CONFIDENCE)])
    ratio = float(np.median(base) / np.median(new))
    return ratio, min(ratio, float(low)), max(ratio, float(high))


def _resampled_medians(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.median(values[rng.integers(0, len(values), (RESAMPLES, len(values)))], axis=1)


def change(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """(ratio, low, high) of the speedup after over the speedup before. Both are (ratio, low, high) over the same
    baseline, each measured in one process: samples of different processes are never compared.

    Interval: distances to the limits, in logarithms, added in quadrature (MOVER; Zou and Donner, 2008).
    """
    (was, was_low, was_high), (now, now_low, now_high) = np.log(before), np.log(after)
    low, high = math.hypot(now - now_low, was_high - was), math.hypot(now_high - now, was - was_low)
    moved = float(now - was)
    return math.exp(moved), math.exp(moved - low), math.exp(moved + high)


def half_width(low: float, high: float) -> float:
    """Relative half-width of a ratio's interval."""
    return (math.log(high) - math.log(low)) / 2


def margin_from(aa: tuple[float, float, float] | None) -> float:
    """The margin from an A/A comparison (ratio, low, high): MARGIN, or twice its deviation if it is off."""
    if aa is None:
        return MARGIN
    ratio, low, high = aa
    strayed = abs(ratio - 1) > AA_TOLERANCE or low < 1 / (1 + MARGIN) or high > 1 + MARGIN
    if not strayed:
        return MARGIN
    return max(MARGIN, 2 * max(abs(ratio - 1), high - 1, 1 - low))


def word(low: float | None, high: float | None, margin: float, rounds: int, paired: bool = True) -> Verdict:
    """FASTER, SLOWER, SAME or UNDECIDED; or why there is no verdict. SAME is always within MARGIN: noise widens only
    what FASTER and SLOWER need."""
    if low is None or high is None:
        return Verdict.NONE
    if not paired:
        return Verdict.UNPAIRED
    if rounds < MIN_ROUNDS:
        return Verdict.NEEDS_MORE
    if margin > WIDEST_MARGIN:
        return Verdict.UNDECIDED
    if low > 1 + margin:
        return Verdict.FASTER
    if high < 1 / (1 + margin):
        return Verdict.SLOWER
    if low >= 1 / (1 + MARGIN) and high <= 1 + MARGIN:
        return Verdict.SAME
    return Verdict.UNDECIDED


# --- many ratios ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def t_quantile(p: float, freedom: int) -> float:
    """Quantile of Student's t distribution; at least 3 degrees of freedom. Cornish-Fisher expansion (Abramowitz and
    Stegun, 26.7.5), within 0.5% for p up to 0.995 and a freedom of at least 4."""
    z, n = NormalDist().inv_cdf(p), max(3, freedom)
    terms = (
        z**3 + z,
        5 * z**5 + 16 * z**3 + 3 * z,
        3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z,
        79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z,
    )
    return z + sum(
        term / scale / n**k for k, (term, scale) in enumerate(zip(terms, (4, 96, 384, 92160), strict=True), 1)
    )


def for_many(ratio: Ratio, comparisons: int, rounds: float) -> Ratio:
    """The ratio with an interval that holds for so many comparisons at once (Bonferroni): the chance that one of all
    intervals misses is at most 1%. rounds: the effective number, if rounds are autocorrelated."""
    return widened(ratio, factor_for_many(comparisons, round(rounds)))


@lru_cache(maxsize=4096)
def factor_for_many(comparisons: int, rounds: int) -> float:
    """How much wider an interval is that holds for so many comparisons at once. In logarithms the distances to its
    limits grow as Student's quantiles of 1 - 0.005 / comparisons and 0.995, with rounds - 1 degrees of freedom."""
    tail, freedom = (1 - CONFIDENCE) / 2, rounds - 1
    return t_quantile(1 - tail / max(1, comparisons), freedom) / t_quantile(1 - tail, freedom)


def widened(ratio: Ratio, factor: float) -> Ratio:
    """The ratio with its interval wider by a factor, in logarithms."""
    low, high = (ratio.ratio * (end / ratio.ratio) ** factor for end in (ratio.low, ratio.high))
    return Ratio(ratio.ratio, low, high)


def geometric_mean(ratios: Sequence[Ratio], wider: Sequence[float] | None = None) -> Ratio | None:
    """Geometric mean of ratios on fixed workloads, with its interval; None of nothing. wider: a factor on the interval
    of each, as for `widened`.

    The interval adds the distances to the limits, of logarithms, in quadrature, over n.
    """
    if not ratios:
        return None
    n, middle, below, above = len(ratios), 0.0, 0.0, 0.0
    for (ratio, low, high), factor in zip(ratios, wider or repeat(1.0), strict=False):
        middle += math.log(ratio)
        below += (factor * math.log(ratio / low)) ** 2
        above += (factor * math.log(high / ratio)) ** 2
    middle, below, above = middle / n, math.sqrt(below) / n, math.sqrt(above) / n
    return Ratio(math.exp(middle), math.exp(middle - below), math.exp(middle + above))
