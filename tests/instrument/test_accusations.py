"""The committed table of accusations: honest kernels are never called wrong, almost right ones always, but for one."""

import json
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "docs" / "measurements" / "accusations-cpu-2026-11-22.json"
TOO_SMALL = ("rescaling-skipped", "bfloat16")
"""In two or four tiles of keys bfloat16 hides most of what is skipped."""


@pytest.fixture(scope="module")
def rows():
    return json.loads(DATA.read_text())["rows"]


def test_no_honest_kernel_was_called_wrong(rows):
    honest = [row for row in rows if row["honest"]]
    assert sum(row["rejected"] for row in honest) == 0
    assert sum(row["seeds"] for row in honest) == 648


def test_almost_right_kernels_were_rejected_on_every_seed(rows):
    missed = [row for row in rows if not row["honest"] and row["rejected"] < row["seeds"]]
    assert {(row["kernel"], row["dtype"]) for row in missed} == {TOO_SMALL}
    assert all("S=128" in row["sizes"] or "S=256" in row["sizes"] for row in missed)
    flawed = [row for row in rows if not row["honest"]]
    assert (sum(row["rejected"] for row in flawed), sum(row["seeds"] for row in flawed)) == (458, 468)


def test_honest_slopes_are_far_below_that_of_a_scale_that_is_a_thousandth_off(rows):
    """In bfloat16, where they are closest."""
    slopes = [row for row in rows if row["operation"] == "attention" and row["dtype"] == "bfloat16"]
    honest = max(row["slope"] for row in slopes if row["honest"])
    off = min(row["slope"] for row in slopes if row["kernel"] == "scale-off-by-a-thousandth")
    assert 2 * honest < off
