"""A short `make chaos`: few runs, and everything breaks once."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.__main__ import missing
from tests.chaos.audit import untruthful
from tests.postgres_server import programs

ROOT = Path(__file__).parents[2]


class Ended:
    """What the audit reads of a run."""

    def __init__(self, state, message=""):
        self.state, self.message = state, message


@pytest.mark.parametrize(
    ("run", "results", "cancelled", "truthful"),
    [
        (Ended("done"), {"a", "b"}, False, True),
        (Ended("done"), {"a"}, False, False),
        (Ended("cancelled"), set(), True, True),
        (Ended("cancelled"), set(), False, False),
        (Ended("failed", "killed by SIGKILL"), set(), False, True),
        (Ended("failed"), set(), False, False),
        (Ended("lost"), {"a", "b"}, False, False),
    ],
)
def test_a_truthful_end(run, results, cancelled, truthful):
    assert (untruthful(run, results, cancelled, {"a", "b"}) == "") == truthful


@pytest.mark.thorough("minutes of chaos")
@pytest.mark.timeout(420)
def test_nothing_is_lost_when_everything_breaks():
    if why := missing():
        pytest.skip(f"no chaos: {why}")
    programs()
    command = [sys.executable, "-m", "tests.chaos", "--runs", "6", "--seconds", "90"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as chaos:
        try:
            said, _ = chaos.communicate()
        finally:
            chaos.terminate()
    last = said.strip().rpartition("\n")[2]
    assert chaos.returncode == 0 and last.startswith("chaos: runs=6 lost=0 twice=0 stuck=0 faults="), said[-9000:]
