"""How often intervals hold the truth and words are false, on simulated rounds: docs/measurements/coverage-simulated.md.

python scripts/coverage.py [--runs 3000] [--out FILE]
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kernels.analysis.statistics import half_width, margin_from, paired_speedup, word
from kernels.contract.arm_result import Verdict
from kernels.parent.rounds import AA_PRECISION, LEAST_CAPTURES
from kernels.protocol import Protocol

Rounds = Callable[[np.random.Generator, int, float], np.ndarray]
"""(random numbers, rounds, standard deviation) -> log-ratios of the rounds around 0."""
NUMBERS = (8, 20, 40, 120)
SPREADS = (0.002, 0.01, 0.02, 0.05)
SPREAD = 0.01
STICKS = 0.9
"""Probability that a round stays in the heap of the one before."""


def independent(rng: np.random.Generator, rounds: int, spread: float) -> np.ndarray:
    return spread * rng.standard_normal(rounds)


def autoregressive(memory: float) -> Rounds:
    """Each round keeps this share of the one before."""

    def draw(rng: np.random.Generator, rounds: int, spread: float) -> np.ndarray:
        values = rng.standard_normal(rounds)
        for i in range(1, rounds):
            values[i] = memory * values[i - 1] + math.sqrt(1 - memory**2) * values[i]
        return spread * values

    return draw


def sticky_heaps(rng: np.random.Generator, rounds: int, spread: float) -> np.ndarray:
    """Two heaps; a round mostly stays in the heap of the one before, as with captures of graphs."""
    hops = rng.random(rounds) >= STICKS
    hops[0] = rng.random() < 0.5
    return spread * (np.where(np.cumsum(hops) % 2, 1.0, -1.0) + 0.1 * rng.standard_normal(rounds))


def uneven_heaps(rng: np.random.Generator, rounds: int, spread: float) -> np.ndarray:
    """Four of five rounds in one heap. The truth is taken as the mean: the estimate is a pseudo-median."""
    heap = np.where(rng.random(rounds) < 0.2, 1.6, -0.4)
    return spread * (heap + 0.1 * rng.standard_normal(rounds))


def drift(rng: np.random.Generator, rounds: int, spread: float) -> np.ndarray:
    """The ratio itself drifts, by one standard deviation from the first round to the last."""
    return spread * (np.linspace(-0.5, 0.5, rounds) + rng.standard_normal(rounds))


NOISE: dict[str, Rounds] = {
    "independent": independent,
    "AR 0.3": autoregressive(0.3),
    "AR 0.6": autoregressive(0.6),
    "AR 0.9": autoregressive(0.9),
    "sticky heaps": sticky_heaps,
    "heaps 80/20, against the mean": uneven_heaps,
    "drift": drift,
}


def interval(logs: np.ndarray) -> tuple[float, float, float]:
    return paired_speedup(np.exp(logs), np.ones(len(logs)))


def plan_of(noise: Rounds) -> Protocol:
    """Graphs, whose rounds fall into sticky heaps, have more rounds at least."""
    return Protocol(min_rounds=LEAST_CAPTURES) if noise is sticky_heaps else Protocol()


def stopped(plan: Protocol, logs: np.ndarray, aa: np.ndarray | None = None) -> int:
    """The round in which an arm leaves: it is precise enough, and so is A/A."""
    for rounds in range(plan.min_rounds, plan.max_rounds, plan.look_every):
        wanted = [(logs, plan.precision)] + ([] if aa is None else [(aa, AA_PRECISION * plan.precision)])
        if all(half_width(*interval(one[:rounds])[1:]) <= most for one, most in wanted):
            return rounds
    return plan.max_rounds


def coverage(noise: Rounds, rounds: int | None, runs: int, seed: int = 1) -> float:
    """Share of intervals that hold the truth. rounds: None for the stop rule of the protocol."""
    rng, plan, held = np.random.default_rng(seed), plan_of(noise), 0
    for _ in range(runs):
        logs = noise(rng, rounds or plan.max_rounds, SPREAD)
        _, low, high = interval(logs[: rounds or stopped(plan, logs)])
        held += low <= 1 <= high
    return held / runs


def words(noise: Rounds, spread: float, ratio: float, runs: int, seed: int = 2) -> dict[str, float]:
    """Share of each word for a kernel of this true ratio that leaves as soon as it and A/A are precise enough. A/A has
    the same noise."""
    rng, plan = np.random.default_rng(seed), plan_of(noise)
    counts = dict.fromkeys((Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.UNDECIDED), 0)
    for _ in range(runs):
        logs, aa = (noise(rng, plan.max_rounds, spread) for _ in range(2))
        rounds = stopped(plan, logs, aa)
        _, low, high = interval(logs[:rounds] + math.log(ratio))
        counts[word(low, high, margin_from(interval(aa[:rounds])), rounds)] += 1
    return {str(name): count / runs for name, count in counts.items()}


def percent(share: float) -> str:
    return f"{share:.1%}".removesuffix("%")


def table(heading: list[str], lines: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heading)} |"
    yield f"| --- |{' ---: |' * (len(heading) - 1)}"
    yield from (f"| {' | '.join(line)} |" for line in lines)


def report(runs: int) -> Iterator[str]:
    yield "# Coverage and words on simulated rounds"
    yield ""
    yield f"By `scripts/coverage.py`; {runs:,} simulated measurements in each cell. The intervals are nominal 99%."
    yield ""
    yield f"## Intervals that hold the truth, % (standard deviation of a round {SPREAD:.0%})"
    yield ""
    kinds = [*map(str, NUMBERS), "stop rule"]
    cells = ([name, *(percent(coverage(noise, n, runs)) for n in (*NUMBERS, None))] for name, noise in NOISE.items())
    yield from table(["rounds", *kinds], cells)
    yield ""
    yield "The estimate is a pseudo-median: where rounds fall into uneven heaps it is not their mean."
    yield f"Sticky heaps are as rounds of graphs: their stop rule begins at {LEAST_CAPTURES} rounds."
    yield ""
    yield "## Words, %, of an arm that leaves when it and A/A, of the same noise, are precise"
    yield ""
    heading = ["noise", "a round's SD", "true 1: FASTER or SLOWER", "true 1.02: SAME", "true 1.02: FASTER", "SLOWER"]
    yield from table(heading, _words(runs))


def _words(runs: int) -> Iterator[list[str]]:
    for name in ("independent", "AR 0.6", "AR 0.9", "sticky heaps", "drift"):
        for spread in SPREADS:
            same, other = (words(NOISE[name], spread, ratio, runs) for ratio in (1.0, 1.02))
            shares = [same["FASTER"] + same["SLOWER"], other["SAME"], other["FASTER"], other["SLOWER"]]
            yield [name, f"{spread:.1%}", *map(percent, shares)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "measurements" / "coverage-simulated.md")
    asked = parser.parse_args()
    asked.out.write_text("\n".join(report(asked.runs)) + "\n")
    print(asked.out.read_text())
