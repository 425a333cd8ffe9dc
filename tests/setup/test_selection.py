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


def test_make_test_leaves_them_and_says_so_and_make_test_all_has_them():
    slow = next(name for name in slow_tests() if name.startswith("tests/setup/test_keeper.py"))
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not thorough and not slow"]
    command = [sys.executable, "-m", "pytest", *options, slow.split("::")[0]]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert "::test_" in found and slow not in found
    assert re.search(r"\d+ slow \(tests/slow.txt\); ", found)
    test, rest = re.findall(r'\$\(PYTEST\) -m "([^"]+)"', (ROOT / "Makefile").read_text())
    assert (test, rest) == ("not thorough and not slow", "thorough or slow")


def test_files_that_share_a_site_are_in_one_room(pytestconfig):
    """Two files of the browser were in none: each worker that took one started a site of its own, for 40 s."""
    rooms = next(plugin.ROOMS for plugin in pytestconfig.pluginmanager.get_plugins() if hasattr(plugin, "ROOMS"))
    files = {str(file.relative_to(ROOT)) for file in (ROOT / "tests/browser").glob("test_*.py")}
    assert set(rooms["a site in a browser"]) == files
