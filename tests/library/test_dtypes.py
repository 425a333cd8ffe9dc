"""The table of dtypes: each row is whole, and agrees with PyTorch and with the table of peaks."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernels.analysis.peaks import PEAKS
from kernels.dtypes import DTYPE_SHORT, EVERY

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("row", EVERY.values(), ids=EVERY)
def test_a_row_is_whole(row):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, row.stored)
    assert dtype.itemsize == row.bytes
    assert row.unit < row.frobenius_cap < 0.1, "a cap under one rounding would reject everything"
    assert row.factor > 1 and row.unusual >= 1 and row.slack < row.frobenius_cap
    assert set(row.matmul_size) <= {"cuda", "cpu"}
    for peak in PEAKS:
        assert 0 < peak.tflops(row.name) <= peak.light(row.name).tflops * 1.01


def test_labels_are_one_to_one():
    assert len(set(DTYPE_SHORT.values())) == len(EVERY) == len(DTYPE_SHORT)


def test_the_table_needs_nothing_but_python():
    code = "import sys, kernels.dtypes\nprint({'torch', 'pydantic', 'numpy', 'yaml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.stdout.strip() == "set()", done.stderr
