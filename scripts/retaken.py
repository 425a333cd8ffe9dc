"""What taking long batches once more would have changed in isolated measurements: factors of "longer" on recorded samples.

python scripts/retaken.py docs/measurements/isolated-*.jsonl
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, pstdev

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.analysis.statistics import WIDEST_MARGIN, margin_from, paired_speedup
from kernels.contract.events import Measured
from kernels.parent.isolated_session import KNOWN

NEVER = 1000.0
FACTORS = (NEVER, 1.03, 1.02, 1.015, 1.01)
ROUNDS, EVERY, SHORTEST_MS = 8, 4, 0.02
Arms = list[list[float]]


def recorded(paths: Sequence[Path]) -> Iterator[Arms]:
    """Samples of the baseline, of a kernel, and of the baseline's second process (ns), round by round."""
    for path in paths:
        for line in path.read_text().splitlines():
            event = Measured.model_validate({key: value for key, value in json.loads(line).items() if key != "run"})
            samples = [arm.samples_ns for arm in event.results[:2]] + [event.aa_samples_ns]
            if event.isolated and (event.results[0].p50_ms or 0) > SHORTEST_MS and all(samples):
                yield [[one[0] for one in arm or []] for arm in samples]


def again(arm: list[float], pool: list[float], factor: float, rng: random.Random) -> tuple[list[float], int]:
    """The arm by the rule, with a random batch of the same arm as the second one; and how often."""
    kept: list[float] = []
    count = 0
    for ns in arm:
        if is_long := len(kept) >= KNOWN and ns > factor * median(kept):
            count += 1
        kept.append(min(ns, rng.choice(pool)) if is_long else ns)
    return kept, count


def main() -> None:
    found = list(recorded([Path(name) for name in sys.argv[1:]]))
    print(f"{len(found)} workloads of at least {SHORTEST_MS * 1e3:g} us, windows of {ROUNDS} rounds")
    for factor in FACTORS:
        rng, margins, shifts, count = random.Random(1), [], [], 0
        for arms in found:
            whole = paired_speedup(arms[0], arms[1])[0]
            for first in range(0, len(arms[0]) - ROUNDS + 1, EVERY):
                new = [again(arm[first : first + ROUNDS], arm, factor, rng) for arm in arms]
                (base, kernel, second), count = [arm for arm, _ in new], count + sum(times for _, times in new)
                margins.append(margin_from(paired_speedup(base, second)))
                shifts.append(paired_speedup(base, kernel)[0] / whole - 1)
        wide = sum(margin > WIDEST_MARGIN for margin in margins)
        print(
            f"{'never' if factor == NEVER else f'over {factor - 1:.1%}'}: {count / len(margins) / ROUNDS / 3:.1%} of batches, "
            f"{wide} of {len(margins)} margins above {WIDEST_MARGIN:.0%}; ratios against those of all rounds: median "
            f"{median(shifts):+.2%}, SD {pstdev(shifts):.2%}, farthest {max(map(abs, shifts)):.2%}"
        )


if __name__ == "__main__":
    main()
