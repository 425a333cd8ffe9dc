"""scripts/agreement.py: isolated beside shared speedups over several runs."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ROOT / "docs/measurements"


@pytest.fixture(scope="module")
def agreement():
    found = importlib.util.spec_from_file_location("agreement", ROOT / "scripts/agreement.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_each_workload_of_a_run_has_one_difference(agreement):
    """In five processes isolated was 0.7710 and shared 0.7704."""
    found = agreement.differences(FILES / "isolated-agreement-five-processes-h200-2026-11-28.jsonl", "triton-flash")
    ((label, (difference, us)),) = found.items()
    assert label == "B=4 H=16 S=2048 D=128"
    assert difference == pytest.approx(0.0008, abs=0.0001)
    assert 200 < us < 230


def test_of_two_shared_modes_the_first_counts(agreement):
    """Cold, then graph: 0.7788 and 0.7856, and 0.7784 isolated."""
    found = agreement.differences(FILES / "isolated-agreement-h200-2026-11-28.jsonl", "triton-flash")
    assert found["B=4 H=16 S=2048 D=128"][0] == pytest.approx(-0.0004, abs=0.0002)


def test_the_interval_of_few_runs_is_that_of_students_t(agreement):
    assert "2 runs  +1.00% (-38.33% to" in agreement.line("a", 10.0, [0.0022, 0.0177])
    assert "(" not in agreement.line("a", 10.0, [0.01])
