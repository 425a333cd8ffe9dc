"""`make zoo`: measures the zoo on a device and prints what each case must be called, and what it is called.

CASES=a,b measures only these; ISOLATED=1 measures in processes of their own. Lines come as cases are measured, so that a
run that is cut off leaves what it has.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

from cases import ALL_FOLDERS, CASES, Case, alone, isolated, on, together  # noqa: E402
from measuring import SIZES, measure, measure_alone  # noqa: E402

MOST, FEW = 12, 6
"""Cases in one run; and in processes of their own, so that lines come soon."""


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


def rows_isolated(device: str, asked: set[str]) -> Iterator[tuple[Case, dict]]:
    kind = device.partition(":")[0]
    some = [case for case in isolated(kind) if not asked or case.name in asked]
    for first in range(0, len(some), FEW):
        part = some[first : first + FEW]
        found = measure(
            device,
            *(case.name for case in part),
            sizes=SIZES[kind],
            environment={"KERNEL_PATH": ALL_FOLDERS},
            isolated=True,
        )
        yield from ((case, found[case.name]) for case in part)


def why_unknown(asked: set[str], kind: str, is_isolated: bool) -> str:
    """A sentence about names that are no cases here; empty if all are."""
    shared = [*(case for cases in together(kind).values() for case in cases), *alone(kind), *on(kind, limits=True)]
    there = {case.name for case in (isolated(kind) if is_isolated else shared)}
    if not (missing := asked - there):
        return ""
    where = f"on {kind}{' in processes of their own' if is_isolated else ''}"
    return f"There is no case {', '.join(sorted(missing))} {where}. There are: {', '.join(sorted(there))}."


def main() -> int:
    device, is_isolated = os.environ.get("DEVICE", "cpu"), os.environ.get("ISOLATED") == "1"
    kind = device.partition(":")[0]
    asked = set(os.environ["CASES"].split(",")) if os.environ.get("CASES") else set()
    if why := why_unknown(asked, kind, is_isolated):
        print(why, file=sys.stderr)
        return 2
    measured = wrong = 0
    print(f"{'case':34} {'attacks':9} {'expected':12} {'got':12} reason")
    for case, row in rows_isolated(device, asked) if is_isolated else rows(device, asked or set(CASES)):
        right = case.is_called_isolated(kind, row) if is_isolated else case.is_called(kind, row)
        must_be = case.isolated[kind][0] if is_isolated else case.must_be[kind][0]
        measured, wrong = measured + 1, wrong + (not right and not case.limit)
        got = row["status"] if row["speedup"] is None else f"{row['status']} {row['speedup']:.3g}x"
        mark = "" if right else f"known limit: {case.limit}" if case.limit else "WRONG: "
        why = mark if right or case.limit else mark + row["why"]
        print(
            f"{case.name:34} {case.attacked:9} {must_be:12} {got:12} {why or row['why'][:90]}",
            flush=True,
        )
    print(f"{measured} cases, {wrong} called wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
