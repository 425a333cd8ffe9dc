"""`make zoo`: measures the zoo on a device and prints what each case must be called, and what it is called."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cases import alone, on, together
from measuring import SIZES, measure, measure_alone


def main() -> int:
    device = os.environ.get("DEVICE", "cpu").partition(":")[0]
    found = {}
    for word, cases in together(device).items():
        more = {"compile_limit_s": 6} if word == "deadly" and device == "cpu" else {}
        found |= measure(device, "eager", *(case.name for case in cases), sizes=SIZES[device], **more)
    for case in [*alone(device), *on(device, limits=True)]:
        found[case.name] = measure_alone(case, device)
    wrong = 0
    print(f"{'case':34} {'attacks':9} {'expected':12} {'got':12} reason")
    for case in [*on(device), *on(device, limits=True)]:
        row = found[case.name]
        right = case.is_called(device, row)
        wrong += not right and not case.limit
        got = row["status"] if row["speedup"] is None else f"{row['status']} {row['speedup']:.3g}x"
        mark = "" if right else f"known limit: {case.limit}" if case.limit else "WRONG"
        print(f"{case.name:34} {case.attacked:9} {case.must_be[device][0]:12} {got:12} {mark or row['why'][:90]}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
