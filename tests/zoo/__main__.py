"""`make zoo`: measures the zoo on a device and prints what each case must be called, and what it is called.

CASES=a,b measures only these.
"""

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

from cases import CASES, alone, on, together  # noqa: E402
from measuring import SIZES, measure, measure_alone  # noqa: E402


def main() -> int:
    device = os.environ.get("DEVICE", "cpu").partition(":")[0]
    asked = (
        os.environ.get("CASES", "").split(",") if os.environ.get("CASES") else [case.name for case in CASES.values()]
    )
    found = {}
    for word, cases in together(device).items():
        more = {"compile_limit_s": 6} if word == "deadly" and device == "cpu" else {}
        if names := [case.name for case in cases if case.name in asked]:
            found |= measure(device, "eager", *names, sizes=SIZES[device], **more)
    for case in [*alone(device), *on(device, limits=True)]:
        if case.name in asked:
            found[case.name] = measure_alone(case, device)
    wrong = 0
    print(f"{'case':34} {'attacks':9} {'expected':12} {'got':12} reason")
    for case in [one for one in [*on(device), *on(device, limits=True)] if one.name in found]:
        row = found[case.name]
        right = case.is_called(device, row)
        wrong += not right and not case.limit
        got = row["status"] if row["speedup"] is None else f"{row['status']} {row['speedup']:.3g}x"
        mark = "" if right else f"known limit: {case.limit}" if case.limit else "WRONG"
        print(f"{case.name:34} {case.attacked:9} {case.must_be[device][0]:12} {got:12} {mark or row['why'][:90]}")
    print(f"{len(found.keys() & CASES.keys())} cases, {wrong} called wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
