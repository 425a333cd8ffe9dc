"""slow_tests.py RESULTS.xml...: writes tests/slow.txt, the tests that `make test` leaves to `make test-all` because they take
long. The results: .venv/bin/python -m pytest -n 3 --dist loadfile -m "not thorough" --junitxml=RESULTS.xml

A function counts with all of its parameters. It stays in `make test` if it is marked `journey`, or if some of its parameters are
left as `thorough`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
LONGEST_S = 4.0


def file_of(package: str) -> str:
    """ "tests.site.test_tiers" -> "tests/site/test_tiers.py"; a class of a file is no part of it."""
    parts = package.split(".")
    while parts and not (ROOT / "/".join(parts)).with_suffix(".py").exists():
        parts.pop()
    return "/".join(parts) + ".py"


def main() -> None:
    took: defaultdict[str, float] = defaultdict(float)
    for results in sys.argv[1:]:
        for case in ElementTree.parse(results).iter("testcase"):
            name = f"{file_of(case.get('classname', ''))}::{case.get('name', '').partition('[')[0]}"
            took[name] += float(case.get("time", 0))
    lines = [f"{seconds:.1f} {name}\n" for name, seconds in sorted(took.items()) if seconds > LONGEST_S]
    (ROOT / "tests" / "slow.txt").write_text("".join(lines))
    print(
        f"{len(lines)} of {len(took)} tests, which take {sum(took.values()):,.0f} s, take longer than {LONGEST_S:g} s"
    )


if __name__ == "__main__":
    main()
