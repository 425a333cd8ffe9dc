"""How far isolated and shared measurements are apart, by workload, over the runs of several cards.

It reads what scripts/isolated.py wrote:

python scripts/agreement.py docs/measurements/FILES
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.contract.events import Measured

T_99 = {1: 63.66, 2: 9.925, 3: 5.841, 4: 4.604, 5: 4.032, 6: 3.707, 7: 3.499, 8: 3.355, 9: 3.250}
"""Two-sided 99% quantiles of Student's t by degrees of freedom."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--kernel", default="triton-flash")
    arguments = parser.parse_args()
    apart: dict[str, list[float]] = defaultdict(list)
    call_us: dict[str, list[float]] = defaultdict(list)
    for path in arguments.files:
        for label, (difference, us) in differences(path, arguments.kernel).items():
            apart[label].append(difference)
            call_us[label].append(us)
    for label in sorted(apart, key=lambda label: fmean(call_us[label])):
        print(line(label, fmean(call_us[label]), apart[label]))


def differences(path: Path, kernel: str) -> dict[str, tuple[float, float]]:
    """Workload -> (log of the isolated speedup over the shared one, the baseline's time in us), of one file: one card, one hour.
    Of shared modes the first counts."""
    logs: dict[str, dict[bool, list[float]]] = defaultdict(lambda: defaultdict(list))
    taken_us: dict[str, float] = {}
    modes: dict[str, str] = {}
    for event in events(path):
        by_name = {result.kernel: result for result in event.results}
        mine, base = by_name.get(kernel), by_name[event.baseline]
        usual = event.isolated or event.mode == modes.setdefault(event.key, event.mode)
        if usual and mine and mine.speedup and base.p50_ms:
            label = event.workload.problem.label()
            logs[label][event.isolated].append(math.log(mine.speedup))
            taken_us.setdefault(label, base.p50_ms * 1e3)
    return {
        label: (fmean(found[True]) - fmean(found[False]), taken_us[label])
        for label, found in logs.items()
        if found[True] and found[False]
    }


def events(path: Path) -> list[Measured]:
    found = []
    for text in path.read_text().splitlines():
        data = json.loads(text)
        if data.get("kind") == "measured":
            found.append(Measured.model_validate(data))
    return found


def line(label: str, us: float, logs: list[float]) -> str:
    mean, count = fmean(logs), len(logs)
    text = f"{label:<28} {us:10.1f} us  {count} runs  {math.expm1(mean):+.2%}"
    if count < 2:
        return text
    half = T_99[min(count - 1, max(T_99))] * stdev(logs) / math.sqrt(count)
    return f"{text} ({math.expm1(mean - half):+.2%} to {math.expm1(mean + half):+.2%}), each {min(logs):+.2%} to {max(logs):+.2%}"


if __name__ == "__main__":
    main()
