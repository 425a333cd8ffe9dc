"""Settings of kernels in CUDA C++: each stands for a macro, and with each of them the kernel is right."""

import shutil
from pathlib import Path

import pytest
from emulated import Emulated
from selection import telling

torch = pytest.importorskip("torch")

from kernels.analysis.correctness import judge  # noqa: E402
from kernels.catalog import declared_in, get_kernel, get_operation, kernels  # noqa: E402
from kernels.child.reference import Reference, measure  # noqa: E402
from kernels.nvrtc.expressions import BadExpression  # noqa: E402
from kernels.settings import all_of, spelled, variant  # noqa: E402

SIZES = {
    "attention": [
        {"batch": 1, "heads": 2, "seq_len": 200, "head_dim": 64, "causal": True},
        {"batch": 1, "heads": 1, "seq_len": 70, "head_dim": 128},
    ],
    "cross_entropy": [{"rows": 70, "vocab": 100}, {"rows": 3, "vocab": 3000}],
    "gelu": [{"rows": 7, "cols": 1001}],
    "swish": [{"rows": 7, "cols": 1001}],
    "mse_loss": [{"rows": 7, "cols": 1001}],
} | {name: [{"rows": 5, "cols": 37}, {"rows": 5, "cols": 1000}, {"rows": 2, "cols": 9000}, {"rows": 3, "cols": 17_000}]
     for name in ("softmax", "rms_norm", "layer_norm")}  # fmt: skip
"""Of rows each way to keep one: in registers, in shared memory (from 16,384 halves on), not at all."""
NOT_EMULATED = {"gemm/cuda-cluster-gemm"}
"""TMA and wgmma: see test_cuda_cluster_gemm.py."""
TUNED = [info for name in SIZES for info in kernels(name) if info.backend == "cuda" and info.space]
MOST = 12


def spread(space):
    """Settings of a space: all of a small one, and of a large one MOST, among them each value of each name."""
    every = all_of(space)
    return every if len(every) <= MOST else [{n: v[i % len(v)] for n, v in space.items()} for i in range(MOST)]


CASES = {
    f"{info.operation}-{'x'.join(map(str, sizes.values()))}-{spelled(settings)}": (info, sizes, settings)
    for info in TUNED
    for settings in spread(info.space)
    for sizes in SIZES[info.operation]
}


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    return Emulated(tmp_path_factory.mktemp("emulated"))


def test_every_kernel_with_a_space_is_tried_here():
    tuned = {info.full_name for info in kernels() if info.space and info.backend == "cuda"}
    assert {info.full_name for info in TUNED} == tuned - NOT_EMULATED
    assert {info.operation for info in TUNED} == set(SIZES)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler (g++) on this host")
@pytest.mark.parametrize(
    "case", telling(list(CASES), *list(CASES)[::19], why="all settings: `make test` has some of each kernel")
)
def test_with_each_of_its_settings_a_kernel_is_right(emulated, case):
    info, sizes, settings = CASES[case]
    problem = get_operation(info.operation)(**sizes, dtype="float16")
    inputs = problem.inputs("cpu", 3)
    out = emulated(problem, info.name, inputs, settings=settings)
    said = judge([measure(out, Reference(problem, inputs, 3, True))], "float16")
    assert said["correct"], said["why"]


def text_of(operation, name):
    from kernels.catalog import load

    return load(get_kernel(operation, name)).call.text


@pytest.mark.parametrize("info", TUNED, ids=lambda info: info.name)
def test_each_value_of_each_name_is_among_those_that_are_tried(info):
    tried = spread(info.space)
    assert {name: {one[name] for one in tried} for name in info.space} == {n: set(v) for n, v in info.space.items()}


def test_a_setting_takes_the_place_of_a_macros_value_and_what_follows_from_it_changes_too():
    text = text_of("softmax", "cuda-softmax")
    inputs = get_operation("softmax")(rows=64, cols=64, dtype="float16").inputs("cpu", 1)
    own, chosen = (text.values(inputs.tensors, {}, 132, settings) for settings in (None, {"threads": 16}))
    assert (own["THREADS"], own["ROWS"]) == (4, 32) and (chosen["THREADS"], chosen["ROWS"]) == (16, 8)
    assert text.shape(chosen) == ((8, 1, 1), (128, 1, 1), 0)
    defines = dict(text.compiled_from(chosen, torch.float16).defines)
    assert (defines["THREADS"], defines["ROWS"], defines["COLS"]) == ("16", "8", "64")


def test_the_own_choice_is_what_it_was_before_there_were_settings():
    """Tiles that were measured: 256 threads with two packets each; eight blocks a multiprocessor."""
    for operation, expected in (("gelu", {"THREADS": 256, "TURNS": 2}), ("swish", {"THREADS": 256, "TURNS": 2}),
                                ("mse_loss", {"THREADS": 256, "BLOCKS": 8})):  # fmt: skip
        text = text_of(operation, f"cuda-{operation.replace('_', '-')}")
        inputs = get_operation(operation)(rows=4096, cols=4096, dtype="float16").inputs("cpu", 1)
        found = text.values(inputs.tensors, inputs.options, 132)
        assert {name: found[name] for name in expected} == expected
        blocks = {"mse_loss": 1056}.get(operation, 4096 * 4096 * 2 // (256 * 2 * 16))
        assert text.shape(found) == ((blocks, 1, 1), (256, 1, 1), 0)


def test_a_block_of_too_many_threads_is_refused_before_it_is_launched():
    text = text_of("gelu", "cuda-gelu")
    inputs = get_operation("gelu")(rows=4, cols=64, dtype="float16").inputs("cpu", 1)
    with pytest.raises(BadExpression, match="a block has at most 1024"):
        text.shape(text.values(inputs.tensors, inputs.options, 132, {"threads": 2048, "turns": 1}))


SOURCE = """
// Twice.
// @kernel("swish", space={space})
// @launch(grid=rows, block=THREADS, defines={{"THREADS": 128}})
// @call("twice<T>", x, out, cols)
"""


@pytest.mark.parametrize(
    ("space", "why"),
    [
        ('{"rows": (1, 2)}', "space has `rows`, so @launch needs a macro ROWS in its defines: its own choice"),
        ('{"threads": ("many",)}', "threads in space is a macro: `many` is no number"),
        ('{"threads": ()}', "the values of threads in space must be 1 to 64"),
        ("7", "space is 7"),
    ],
)
def test_a_space_that_stands_for_no_macro_is_said_with_its_line(space, why):
    with pytest.raises(ValueError) as raised:
        list(declared_in(Path("swish/mine.cu"), SOURCE.format(space=space).encode()))
    assert why in str(raised.value) and "line 3" in str(raised.value)


def test_a_variant_has_the_name_of_its_settings():
    (info,) = declared_in(Path("swish/mine.cu"), SOURCE.format(space='{"threads": (64, 128)}').encode())
    assert info.space == {"threads": (64, 128)} and variant(info.name, {"threads": 64}) == "mine~threads=64"


class Cuda:
    """Devices that compile nothing: what is launched."""

    def __init__(self):
        self.launched = []

    def why_not(self, tensor):
        return ""

    def device(self, tensor):
        from types import SimpleNamespace

        return SimpleNamespace(multiprocessors=132, architecture="sm_90a", shared_bytes=232_448)

    def current_stream(self):
        return lambda device: 0

    def load(self, made):
        return self

    def allow_shared(self, count):
        pass

    def launcher(self, grid, block, shared, address):
        return lambda stream: self.launched.append((grid, block, shared))


def test_each_settings_of_a_call_are_launched_as_they_are(monkeypatch):
    from types import SimpleNamespace

    from kernels.nvrtc import compiler
    from kernels.nvrtc.kernel import CudaKernel

    monkeypatch.setattr(compiler, "compiled", lambda source, architecture: SimpleNamespace(static_shared_bytes=0))
    cuda = Cuda()
    call = CudaKernel(text_of("softmax", "cuda-softmax"), cuda)
    x = torch.zeros(64, 64, dtype=torch.float16)
    for settings in (None, {"threads": 16}, None, {"threads": 64}):
        call(x, out=torch.empty_like(x), settings=settings)
    assert [(grid[0], block[0]) for grid, block, _ in cuda.launched] == [(2, 128), (8, 128), (2, 128), (64, 64)]
