"""The CUDA C++ of operations on rows, on a GPU that is emulated: rows that share a warp, a block, or have several warps."""

import shutil
import subprocess

import pytest
from emulated import Emulated

torch = pytest.importorskip("torch")

from kernels.analysis.correctness import judge  # noqa: E402
from kernels.catalog import get_operation  # noqa: E402
from kernels.child.reference import Reference, measure  # noqa: E402
from kernels.nvrtc.kernel import KernelText  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler (g++) on this host")
OPERATIONS = {"softmax": "cols", "rms_norm": "cols", "layer_norm": "cols", "cross_entropy": "vocab"}
WIDTHS = (2, 8, 37, 64, 100, 500, 600, 768, 1000, 1025, 2000, 2048, 4096, 9000, 17_000, 40_000)
"""In bytes from below 64, four threads a row, to beyond 72 KiB; some no multiple of 16 bytes."""
ROWS = 5
"""No multiple of the rows of a block."""
MANY = "emulated GPU: `make test` takes float16"


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    return Emulated(tmp_path_factory.mktemp("emulated"))


def verdict(emulated, operation, width, dtype, rows=ROWS, change=None):
    problem = get_operation(operation)(**{"rows": rows, OPERATIONS[operation]: width, "dtype": dtype})
    inputs = problem.inputs("cpu", 3)
    out = emulated(problem, f"cuda-{operation.replace('_', '-')}", inputs, change)
    return judge([measure(out, Reference(problem, inputs, 3, True))], dtype)


# bfloat16 has the element size of float16, and so its tiles: a few widths.
@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        *(("float16", width) for width in WIDTHS),
        *(pytest.param("float32", width, marks=pytest.mark.thorough(MANY)) for width in WIDTHS),
        *(pytest.param("bfloat16", width, marks=pytest.mark.thorough(MANY)) for width in WIDTHS[2::6]),
    ],
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_rows_of_every_width_are_right(emulated, operation, width, dtype):
    said = verdict(emulated, operation, width, dtype)
    assert said["correct"], said["why"]


@pytest.mark.parametrize("operation, width", [("softmax", 17_001), ("rms_norm", 33_001), ("layer_norm", 33_001)])
def test_long_rows_of_odd_width_are_right(emulated, operation, width):
    said = verdict(emulated, operation, width, "float16", rows=2)
    assert said["correct"], said["why"]


@pytest.mark.parametrize("rows, vocab, dtype", [(70, 1001, "float32"), (3000, 9, "float16")])
def test_blocks_that_do_many_rows_are_right(tmp_path, rows, vocab, dtype):
    """With one multiprocessor there are eight blocks."""
    said = verdict(Emulated(tmp_path, sms=1), "cross_entropy", vocab, dtype, rows)
    assert said["correct"], said["why"]


@pytest.mark.parametrize("rows", [1, 33, 300])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_number_of_rows_is_right(emulated, operation, rows):
    said = verdict(emulated, operation, 64, "float16", rows)
    assert said["correct"], said["why"]


def test_the_emulated_gpu_sees_too_little_shared_memory(emulated, monkeypatch):
    shape = KernelText.shape
    monkeypatch.setattr(
        KernelText, "shape", lambda self, values: (*shape(self, values)[:2], shape(self, values)[2] // 2)
    )
    with pytest.raises(subprocess.CalledProcessError):
        verdict(emulated, "softmax", 17_000, "float16")


@pytest.mark.parametrize(
    ("operation", "change"),
    [
        ("softmax", ("LANES / 2; lane > 0", "LANES / 4; lane > 0")),
        ("rms_norm", ("LANES / 2; lane > 0", "LANES / 4; lane > 0")),
        ("layer_norm", ("min(blockIdx.x * ROWS + threadIdx.x / THREADS, rows - 1)", "blockIdx.x")),
        ("cross_entropy", ("LANES < 32 ? LANES / 2 : 16", "LANES < 32 ? LANES / 4 : 16")),
    ],
)
def test_the_emulated_gpu_shows_what_is_wrong(emulated, operation, change):
    assert verdict(emulated, operation, 64, "float16", change=change)["correct"] is False
