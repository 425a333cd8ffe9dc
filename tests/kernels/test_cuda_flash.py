"""cuda-flash and cuda-naive on a GPU that is emulated: the kernels' own C++, with stand-ins for the instructions.

So tiles, swizzles, masks and the layout of fragments are run as they are. On a GPU: tests/instrument/test_cuda_files_on_a_gpu.py.
"""

import shutil

import pytest
from emulated import Emulated
from selection import telling

torch = pytest.importorskip("torch")

from kernels.analysis.correctness import judge  # noqa: E402
from kernels.child.reference import Reference, measure  # noqa: E402
from kernels.operations.attention import Attention  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler (g++) on this host")
MANY = "emulated GPU: `make test` takes a few shapes of cuda-flash"


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    return Emulated(tmp_path_factory.mktemp("emulated"))


def verdict(emulated, name, problem, distribution="normal", change=None):
    inputs = problem.inputs("cpu", 3, distribution)
    out = emulated(problem, name, inputs, change)
    return judge([measure(out, Reference(problem, inputs, 3, True, distribution))], problem.dtype)


@pytest.mark.parametrize("dtype", telling(["float16", "bfloat16"], "float16", why=MANY))
@pytest.mark.parametrize("head_dim", telling([64, 128], 128, why=MANY))
@pytest.mark.parametrize("causal", telling([False, True], True, why=MANY), ids=["full", "causal"])
@pytest.mark.parametrize("window", telling([0, 50], 0, why=MANY))
def test_cuda_flash_is_right_with_groups_and_ragged_ends(emulated, window, causal, head_dim, dtype):
    for seq_len in (1, 65, 200):
        problem = Attention(
            batch=1, heads=4, kv_heads=2, seq_len=seq_len, head_dim=head_dim, causal=causal, window=window, dtype=dtype
        )
        said = verdict(emulated, "cuda-flash", problem)
        assert said["correct"], (seq_len, said["why"])


@pytest.mark.parametrize("causal", telling([False, True], True, why=MANY), ids=["full", "causal"])
@pytest.mark.parametrize("window", telling([1, 33, 130], 33, why=MANY))
def test_cuda_flash_does_windows(emulated, window, causal):
    problem = Attention(batch=2, heads=1, kv_heads=1, seq_len=300, head_dim=64, causal=causal, window=window, scale=0.2)
    said = verdict(emulated, "cuda-flash", problem)
    assert said["correct"], said["why"]


@pytest.mark.parametrize("distribution", telling(["x30", "near_constant", "outliers"], "x30", why=MANY))
def test_cuda_flash_is_right_on_unusual_inputs(emulated, distribution):
    problem = Attention(batch=1, heads=2, seq_len=130, head_dim=64, causal=True)
    said = verdict(emulated, "cuda-flash", problem, distribution)
    assert said["correct"], said["why"]


@pytest.mark.parametrize(
    "change",
    [
        ("wait_for_copies();", ""),
        ("behind >= window", "behind > window"),
        ("CAUSAL && behind < 0", "CAUSAL && behind < -1"),
        ("(row % 8)", "(row % 4)"),
        ("total[m][half] *= kept;", ""),
    ],
    ids=["does not wait", "a key too many", "the next key", "another place", "sums not rescaled"],
)
def test_the_emulated_gpu_shows_what_is_wrong(emulated, change):
    """A wrong swizzle that is the same everywhere is right: it costs time only."""
    problem = Attention(batch=1, heads=1, seq_len=130, head_dim=64, causal=True, window=50)
    assert verdict(emulated, "cuda-flash", problem, change=change)["correct"] is (change[0] == "(row % 8)")


@pytest.mark.parametrize("causal", telling([False, True], True, why=MANY), ids=["full", "causal"])
@pytest.mark.parametrize("window", telling([0, 1, 20], 20, why=MANY))
def test_cuda_naive_is_right(emulated, window, causal):
    for dtype, head_dim in (("float16", 40), ("float32", 64)):
        problem = Attention(
            batch=1, heads=2, kv_heads=1, seq_len=63, head_dim=head_dim, causal=causal, window=window, dtype=dtype
        )
        said = verdict(emulated, "cuda-naive", problem)
        assert said["correct"], (dtype, said["why"])
