"""`make zoo`: measures the zoo on a device and prints what each case must be called, and what it is called.

CASES=a,b measures only these. Lines come as cases are measured, so that a run that is cut off leaves what it has.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

from cases import CASES, Case, alone, on, together  # noqa: E402
from measuring import SIZES, measure, measure_alone  # noqa: E402

MOST = 12
"""Cases in one run."""


def rows(device: str, asked: set[str]) -> Iterator[tuple[Case, dict]]:
    """(case, its row), as they are measured."""
    kind = device.partition(":")[0]
    for word, cases in together(kind).items():
        more = {"compile_limit_s": 6} if word == "deadly" and kind == "cpu" else {}
        some = [case for case in cases if case.name in asked]
        for first in range(0, len(some), MOST):
            part = some[first : first + MOST]
            found = measure(device, "eager", *(case.name for case in part), sizes=SIZES[kind], **more)
            yield from ((case, found[case.name]) for case in part)
    for case in [*alone(kind), *on(kind, limits=True)]:
        if case.name in asked:
            yield case, measure_alone(case, device)


def main() -> int:
    device = os.environ.get("DEVICE", "cpu")
    kind = device.partition(":")[0]
    asked = set(os.environ["CASES"].split(",")) if os.environ.get("CASES") else set(CASES)
    measured = wrong = 0
    print(f"{'case':34} {'attacks':9} {'expected':12} {'got':12} reason")
    for case, row in rows(device, asked):
        right = case.is_called(kind, row)
        measured, wrong = measured + 1, wrong + (not right and not case.limit)
        got = row["status"] if row["speedup"] is None else f"{row['status']} {row['speedup']:.3g}x"
        mark = "" if right else f"known limit: {case.limit}" if case.limit else "WRONG: "
        why = mark if right or case.limit else mark + row["why"]
        print(
            f"{case.name:34} {case.attacked:9} {case.must_be[kind][0]:12} {got:12} {why or row['why'][:90]}",
            flush=True,
        )
    print(f"{measured} cases, {wrong} called wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
