"""cuda-flash-decode on a GPU that is emulated, its clusters and their memory too; and scratch memory of a launch.

On a GPU: tests/instrument/test_cuda_files_on_a_gpu.py.
"""

import ctypes
import shutil
from types import SimpleNamespace

import pytest
from emulated import SMS, Emulated
from selection import telling

torch = pytest.importorskip("torch")

from kernels.analysis.correctness import judge  # noqa: E402
from kernels.catalog import declared_in, get_kernel, load  # noqa: E402
from kernels.child.reference import Reference, measure  # noqa: E402
from kernels.nvrtc import compiler, toolchain  # noqa: E402
from kernels.nvrtc.declaration import BadDeclaration  # noqa: E402
from kernels.nvrtc.expressions import BadExpression  # noqa: E402
from kernels.nvrtc.kernel import CudaKernel  # noqa: E402
from kernels.operations.attention import Attention  # noqa: E402

NAME = "cuda-flash-decode"
MANY = "emulated GPU: `make test` takes a few shapes of cuda-flash-decode"
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler (g++) on this host")
needs_nvrtc = pytest.mark.skipif(bool(toolchain.why_not()), reason=toolchain.why_not())
CLUSTER = {"warps": 4, "tile": 16, "stages": 3, "cluster": 8, "parts": 1}
LAST_BLOCK = {"warps": 4, "tile": 16, "stages": 3, "cluster": 1, "parts": 8}
BOTH = {"warps": 4, "tile": 16, "stages": 2, "cluster": 4, "parts": 4}
WIDE = {"warps": 8, "tile": 32, "stages": 1, "cluster": 2, "parts": 2}
JOINS = {"own": None, "cluster": CLUSTER, "last block": LAST_BLOCK, "both": BOTH, "wide": WIDE}
SHAPES = {
    "one query": {"heads": 8, "kv_heads": 2, "seq_len": 1, "kv_len": 1003},
    "causal": {"batch": 2, "heads": 4, "kv_heads": 1, "seq_len": 3, "kv_len": 517, "causal": True},
    "a whole tile": {"heads": 4, "kv_heads": 1, "seq_len": 4, "kv_len": 256, "causal": True, "head_dim": 128},
    "two warps a team": {"heads": 32, "kv_heads": 1, "seq_len": 1, "kv_len": 700, "head_dim": 128},
    "four": {"heads": 4, "kv_heads": 1, "seq_len": 15, "kv_len": 333, "causal": True},
    "eight, two tiles": {"heads": 32, "kv_heads": 1, "seq_len": 6, "kv_len": 333, "causal": True},
    "fewer keys than blocks": {"heads": 2, "kv_heads": 1, "seq_len": 2, "kv_len": 3, "causal": True},
    "one key": {"batch": 2, "heads": 1, "seq_len": 1},
    "itself": {"heads": 2, "kv_heads": 1, "seq_len": 16, "causal": True, "head_dim": 128},
    "fewer keys than queries": {"heads": 2, "seq_len": 9, "kv_len": 4},
}
CASES = [(shape, join) for shape in SHAPES for join in JOINS]
SOME = [
    ("one query", "own"),
    ("causal", "both"),
    ("a whole tile", "cluster"),
    ("two warps a team", "last block"),
    ("eight, two tiles", "both"),
]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    return Emulated(tmp_path_factory.mktemp("emulated"))


def problem_of(shape, dtype="float16"):
    return Attention(**{"batch": 1, "head_dim": 64, "dtype": dtype} | SHAPES[shape])


def verdict(emulated, problem, distribution="normal", **how):
    inputs = problem.inputs("cpu", 3, distribution)
    out = emulated(problem, NAME, inputs, **how)
    return judge([measure(out, Reference(problem, inputs, 3, True, distribution))], problem.dtype)


@needs_compiler
@pytest.mark.parametrize("case", telling(CASES, *SOME, why=MANY), ids=" ".join)
def test_it_is_right_however_it_joins(emulated, case):
    shape, join = case
    said = verdict(emulated, problem_of(shape), settings=JOINS[join], launches=2)
    assert said["correct"], said["why"]


@needs_compiler
@pytest.mark.parametrize("distribution", telling(["x30", "near_constant", "outliers", "drift"], "x30", why=MANY))
def test_it_is_right_on_unusual_inputs_and_in_bfloat16(emulated, distribution):
    said = verdict(emulated, problem_of("causal", "bfloat16"), distribution, settings=BOTH)
    assert said["correct"], said["why"]


WRONG = {
    "does not wait": ("wait_for_all_but<DEPTH - 1>();", ""),
    "waits for one less": ("wait_for_all_but<DEPTH - 1>();", "wait_for_all_but<DEPTH>();"),
    "the next key": (">= seen[i / 2]", "> seen[i / 2]"),
    "sums not rescaled": ("sums[n][i] *= kept[i / 2];", ";"),
    "does not wait for the cluster": ("arrive_at_cluster(), wait_for_cluster();", "arrive_at_cluster();"),
    "another block's share": ("count * (rank + 1) / CLUSTER", "count * (rank + 1) / (CLUSTER + 1)"),
    "the last cluster but one adds": ("% COUNTS == SPLITS - 1", "% COUNTS == SPLITS - 2"),
    "a count that stays": ("atomicExch(entry, 0ull);", ";"),
}


@needs_compiler
@pytest.mark.parametrize("change", telling(list(WRONG), *list(WRONG)[4:], why=MANY))
def test_the_emulated_gpu_shows_what_is_wrong(emulated, change):
    problem = Attention(batch=1, heads=4, kv_heads=1, seq_len=3, kv_len=1999, head_dim=64, causal=True)
    assert not verdict(emulated, problem, change=WRONG[change], settings=BOTH, launches=2)["correct"]


# --- its own choice ---------------------------------------------------------------------------------------------------


def text():
    return load(get_kernel("attention", NAME)).call.text


def values_of(settings=None, **sizes):
    problem = Attention(**{"batch": 1, "heads": 32, "kv_heads": 8, "seq_len": 1, "head_dim": 128} | sizes)
    q = torch.empty(problem.batch, problem.heads, problem.seq_len, problem.head_dim, dtype=torch.float16, device="meta")
    k = q.new_empty(problem.batch, problem.kv_heads, problem.keys, problem.head_dim)
    options = {"causal": problem.causal, "scale": problem.scale, "kv_len": problem.kv_len}
    return text().values((q, k, k), options, SMS, settings)


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ({"kv_len": 1024}, 8 * 8),
        ({"kv_len": 131072}, 8 * 8 * 4),
        ({"kv_len": 32768, "batch": 16}, 8 * 16 * 2),
        ({"kv_len": 131072, "kv_heads": 1}, 8 * 16),
        ({"kv_len": 8192, "kv_heads": 1, "batch": 16}, 16 * 16),
        ({"kv_len": 8192, "kv_heads": 1, "batch": 16, "seq_len": 4}, 8 * 16),
    ],
)
def test_there_are_blocks_for_every_processor_if_there_are_keys(sizes, blocks):
    values = values_of(**sizes)
    grid, _, shared = text().shape(values)
    assert grid[0] * grid[1] * grid[2] == blocks and shared == 96 * 1024


def test_scratch_memory_and_entries_are_enough_for_every_choice():
    for batch, kv_heads in ((1, 1), (16, 8), (512, 8), (60_000, 8)):
        for settings in (None, LAST_BLOCK, BOTH, BOTH | {"parts": 32}):
            values = values_of(settings, batch=batch, kv_heads=kv_heads, kv_len=2048)
            one_launch = values["CLUSTER"] * values["TILES"] * batch * kv_heads
            split = values["SPLITS"] > 1
            assert not split or (one_launch <= 4096 and values["SPLITS"] < 1024)
            tiles = values["TILES"] * batch * kv_heads
            room = tiles * values["SPLITS"] * 16 * values["TEAM"] * (128 // 2) * 16
            assert text().scratch(values) == (room if split else 0)


@needs_nvrtc
@pytest.mark.parametrize("join", telling(list(JOINS), "own", "both", why="every join"))
def test_no_register_is_spilled(join):
    for sizes in ({"kv_len": 8192}, {"kv_len": 8192, "kv_heads": 1, "seq_len": 4, "causal": True}):
        made = compiler.compiled(text().compiled_from(values_of(JOINS[join], **sizes), torch.bfloat16), "sm_90a")
        assert made.local_bytes == 0 and "warning" not in made.log


# --- scratch memory ---------------------------------------------------------------------------------------------------


class Cuda:
    """Devices that run nothing, and note what the arguments are at each launch."""

    def __init__(self):
        self.passed = []

    def why_not(self, tensor):
        return ""

    def device(self, tensor):
        return SimpleNamespace(multiprocessors=SMS, architecture="sm_90a", shared_bytes=232_448)

    def current_stream(self):
        return lambda device: 0

    def load(self, made):
        return self

    def allow_shared(self, count):
        pass

    def launcher(self, grid, block, shared, address):
        pointers = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))
        return lambda stream: self.passed.append(
            [ctypes.cast(pointers[i], ctypes.POINTER(ctypes.c_void_p))[0] for i in range(5)]
        )


def test_each_launch_gets_scratch_memory_from_pytorch_if_it_needs_some(monkeypatch):
    monkeypatch.setattr(compiler, "compiled", lambda source, architecture: SimpleNamespace(static_shared_bytes=0))
    cuda, new, made = Cuda(), torch.empty, []
    monkeypatch.setattr(torch, "empty", lambda *sizes, **how: made.append(new(*sizes, **how)) or made[-1])
    call = CudaKernel(text(), cuda)
    q, k = torch.zeros(1, 2, 1, 64).half(), torch.zeros(1, 1, 900, 64).half()
    out = torch.zeros_like(q)
    for settings in (BOTH, BOTH, CLUSTER, CLUSTER):
        call(q, k, k, out=out, settings=settings, causal=False, scale=1.0, kv_len=900)
    assert [one.numel() for one in made] == [128 * 64 * 4, 128 * 64 * 4, 0], "one for each launch; none is made once"
    first, second, third, last = (passed[4] for passed in cuda.passed)
    assert first == made[0].data_ptr() and second == made[1].data_ptr() and not third and not last
    assert all(passed[3] == out.data_ptr() for passed in cuda.passed)


SOURCE = """
// Twice.
// @kernel("swish")
// @launch(grid=rows, block=128{scratch})
// @call("twice<T>", x, out, scratch, cols)
"""


def declared(tmp_path, scratch):
    (one,) = declared_in(tmp_path / "swish" / "mine.cu", SOURCE.format(scratch=scratch).encode())
    return one


def test_scratch_is_a_name_only_where_the_launch_asks_for_some(tmp_path, monkeypatch):
    assert "scratch" not in declared(tmp_path, ", scratch=4 * rows").takes
    with pytest.raises(ValueError, match="swish has no `scratch`"):
        declared(tmp_path, "")


def test_scratch_memory_that_is_asked_for_is_passed(tmp_path):
    path, asked = tmp_path / "swish" / "mine.cu", SOURCE.format(scratch=", scratch=4 * rows")
    path.parent.mkdir(exist_ok=True)
    with pytest.raises(
        BadDeclaration, match=r"line 5: @launch asks for scratch memory; pass it: @call\(\.\.\., scratch\)"
    ):
        list(declared_in(path, asked.replace("out, scratch, cols", "out, cols").encode()))
    for wrong in ("out, scratch + 1, scratch, cols", "out, scratch, cols + scratch"):
        with pytest.raises(ValueError, match="swish has no `scratch`"):  # a pointer, no number
            list(declared_in(path, asked.replace("out, scratch, cols", wrong).encode()))


@pytest.mark.parametrize("scratch", ["0 - rows", "rows / 3"])
def test_scratch_is_a_number_of_bytes(tmp_path, monkeypatch, scratch):
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    (tmp_path / "swish").mkdir()
    (tmp_path / "swish" / "mine.cu").write_text(SOURCE.format(scratch=f", scratch={scratch}"))
    mine = load(get_kernel("swish", "mine")).call.text
    with pytest.raises(BadExpression, match=r"mine.cu, line 4: scratch=.*must be a number of bytes"):
        mine.scratch({"rows": 8})
