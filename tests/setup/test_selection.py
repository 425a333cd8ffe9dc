"""What `make test` leaves to `make test-all`: each of its tests is one that there is, and `make test` says how many it left."""

import re
import subprocess
import sys
from pathlib import Path

from selection import slow_tests

ROOT = Path(__file__).parents[2]
LINES_OF_TEST = re.compile(r"^\s*def (test_\w+)\(", re.MULTILINE)


def test_each_slow_test_is_there_and_long():
    slow = slow_tests()
    files = {name.split("::")[0] for name in slow}
    known = {f"{file}::{name}" for file in files for name in LINES_OF_TEST.findall((ROOT / file).read_text())}
    assert slow.keys() - known == set(), "scripts/slow_tests.py writes tests/slow.txt anew"
    assert len(slow) > 50 and min(slow.values()) > 1


def test_make_test_leaves_them_and_says_so_and_no_other_place_does():
    slow = next(name for name in slow_tests() if name.startswith("tests/library/"))
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", slow.split("::")[0]]

    def collected(chosen):
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, "-m", chosen], cwd=ROOT, capture_output=True, text=True
        )

    quick, rest = collected("not thorough and not slow"), collected("thorough or slow")
    assert slow not in quick.stdout and slow in rest.stdout
    assert re.search(r"\d+ slow: tests/slow.txt; `make test` has quicker ones", quick.stdout)
    assert not re.search(r"\d+ slow: ", rest.stdout)
