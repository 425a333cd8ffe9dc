"""The settings that Triton kernels declare: right in the interpreter, and refused where they cannot be."""

import importlib

import pytest
from interpreter import interpreting, serve

from kernels import catalog

GEMM = {"block_m": 16, "block_n": 32, "block_k": 32, "warps": 4, "stages": 2, "tma": False, "persistent": True}
FLASH = {"block_m": 32, "block_n": 16, "warps": 4, "stages": 2, "mask": "always", "tma": True}
DECODE = {"keys": 16, "warps": 4, "stages": 2, "programs": 2, "swapped": True, "early": False, "tma": False}
STAGE = {"rows": 32, "keys": 16, "warps": 4, "stages": 2}
HEADS = {"batch": 1, "heads": 2, "seq_len": 70, "head_dim": 64, "causal": True}
FEW = {"batch": 1, "heads": 4, "kv_heads": 2, "seq_len": 3, "kv_len": 90, "head_dim": 64, "causal": False}
SPARSE = {
    "batch": 1, "heads": 4, "groups": 2, "seq_len": 70, "head_dim": 32, "block_size": 32, "selected_blocks": 2, "causal": True,
}  # fmt: skip
SPLIT = {"block_m": 16, "block_n": 32, "block_k": 32, "warps": 4, "stages": 2, "splits": 2, "group": 4, "parts": 1}
BLOCKS = {"rows": 16, "columns": 32, "terms": 32, "warps": 4, "stages": 2}
MATRICES = {"m": 20, "n": 40, "k": 72}
RIGHT = [
    ("layer_norm", {"rows": 9, "cols": 300}, {"rows": 4, "warps": 4}),
    ("softmax", {"rows": 9, "cols": 300}, {"rows": 4, "warps": 4, "block": "held"}),
    ("softmax", {"rows": 3, "cols": 2100}, {"rows": 1, "warps": 8, "block": "2x1024"}),
    ("rms_norm", {"rows": 9, "cols": 300}, {"rows": 2, "warps": 2, "block": "held"}),
    ("rms_norm", {"rows": 3, "cols": 1500}, {"rows": 1, "warps": 4, "block": "1x1024"}),
    ("cross_entropy", {"rows": 5, "vocab": 2100}, {"rows": 1, "warps": 8, "block": "1x2048"}),
    ("gelu", {"rows": 7, "cols": 100}, {"block": 256, "warps": 2}),
    ("swish", {"rows": 7, "cols": 100}, {"block": 512, "warps": 1}),
    ("mse_loss", {"rows": 7, "cols": 100}, {"block": 256, "warps": 1, "programs": 2}),
    ("gemm", {"m": 20, "n": 40, "k": 70}, GEMM),
    ("gemm/split_gemm", MATRICES, SPLIT),
    ("gemm/split_gemm", MATRICES, SPLIT | {"splits": 1, "parts": 2}),
    ("gemm/batched_gemm", MATRICES | {"batch": 3}, BLOCKS),
    ("gemm/narrow_gemm", MATRICES | {"dtype": "tf32"}, BLOCKS),
    ("attention/flash", HEADS, FLASH),
    ("attention/flash", HEADS | {"causal": False}, FLASH | {"mask": "branch", "tma": False, "block_m": 16}),
    ("attention/flash_decode", FEW, DECODE),
    ("attention/flash_decode", FEW, DECODE | {"swapped": False, "tma": True, "keys": 32}),
    ("attention/overlapped", HEADS, STAGE),
    ("attention/persistent", HEADS, STAGE),
    ("nsa", SPARSE, {"keys": 16, "warps": 2, "stages": 2}),
]
REFUSED = [
    ("layer_norm", {"rows": 64, "cols": 4096}, {"rows": 64, "warps": 1}, "8192 elements a thread"),
    ("layer_norm", {"rows": 2, "cols": 20_000}, {"rows": 2, "warps": 4}, "rows=1"),
    ("softmax", {"rows": 4, "cols": 300}, {"rows": 1, "warps": 1, "block": "8x1024"}, "is longer than a block"),
    ("softmax", {"rows": 4, "cols": 300}, {"rows": 1, "warps": 32, "block": "held"}, "0.5 elements a thread"),
    ("gelu", {"rows": 4, "cols": 300}, {"block": 256, "warps": 16}, "0.5 elements a thread"),
    ("gemm", {"m": 20, "n": 40, "k": 70}, GEMM | {"block_m": 256, "block_n": 256}, "512 sums a thread"),
    ("gemm", {"m": 20, "n": 40, "k": 70}, GEMM | {"block_n": 256, "block_k": 256, "stages": 5}, "of shared memory"),
    ("gemm/split_gemm", MATRICES, SPLIT | {"parts": 2}, "splits=1"),
    ("gemm/split_gemm", MATRICES, SPLIT | {"block_n": 256, "block_k": 256, "stages": 5}, "of shared memory"),
    ("gemm/batched_gemm", MATRICES, BLOCKS | {"rows": 128, "columns": 256}, "256 sums a thread"),
    (
        "gemm/narrow_gemm",
        MATRICES | {"dtype": "tf32"},
        BLOCKS | {"rows": 128, "columns": 128, "terms": 128, "stages": 4},
        "of shared",
    ),
    ("attention/flash", HEADS | {"head_dim": 128}, FLASH | {"block_n": 128, "stages": 4}, "of shared memory"),
    ("attention/flash_decode", FEW | {"head_dim": 128}, DECODE | {"keys": 256, "stages": 4}, "of shared memory"),
    ("attention/overlapped", HEADS | {"head_dim": 256}, STAGE | {"keys": 128, "stages": 4}, "of shared memory"),
    ("attention/persistent", HEADS | {"head_dim": 256}, STAGE | {"keys": 128, "stages": 4}, "of shared memory"),
    ("nsa", SPARSE, {"keys": 64, "warps": 2, "stages": 2}, "is longer than a block of 32"),
]


@pytest.fixture(scope="module")
def interpreter():
    yield from interpreting(__file__)


@pytest.mark.parametrize("operation, sizes, settings", RIGHT, ids=lambda one: one if isinstance(one, str) else "")
def test_a_kernel_is_right_with_settings(interpreter, operation, sizes, settings):
    found = interpreter.run(operation=operation, sizes=sizes, settings=settings)
    assert "raised" not in found, found["raised"]
    assert found["correct"], found["why"]


@pytest.mark.parametrize(
    "operation, sizes, settings, why", REFUSED, ids=lambda one: one if isinstance(one, str) else ""
)
def test_settings_that_cannot_be_are_refused_with_the_reason(interpreter, operation, sizes, settings, why):
    raised = interpreter.run(operation=operation, sizes=sizes, settings=settings)["raised"]
    assert "Unsupported" in raised and why in raised


def named(of):
    """(operation, kernel) of "attention/flash", or of the only kernel in Triton of an operation."""
    operation, _, kernel = of.partition("/")
    return operation, f"triton_{kernel or operation}"


def test_every_kernel_with_a_space_is_tried_here():
    """Those in CUDA C++ are tried in test_cuda_settings.py."""
    tuned = [info for info in catalog.kernels() if info.space and info.backend not in ("cuda", "gluon")]
    declared = {(info.operation, info.name.replace("-", "_")) for info in tuned}
    assert declared == {named(of) for of, *_ in RIGHT}


@pytest.mark.parametrize("operation", sorted({operation for operation, *_ in RIGHT}))
def test_what_is_tried_here_is_in_the_space(operation):
    of_operation, kernel = named(operation)
    info = catalog.get_kernel(of_operation, kernel.replace("_", "-"))
    for of, _, settings in [*RIGHT, *(one[:3] for one in REFUSED)]:
        if of == operation:
            assert settings.keys() == info.space.keys()
            assert all(value in info.space[name] for name, value in settings.items())


# --- in the child -----------------------------------------------------------------------------------------------------


def run_case(operation, sizes, settings):
    """Runs the kernel once with settings, and judges it as the instrument does."""
    from kernels.analysis.correctness import judge
    from kernels.catalog import get_operation
    from kernels.child.reference import Reference, measure

    operation, kernel = named(operation)
    module = importlib.import_module(f"kernels.operations.{operation}.{kernel}")
    problem = get_operation(operation)(**{"dtype": "float16"} | sizes)
    inputs = problem.inputs("cpu", 3)
    out = getattr(module, kernel)(*inputs.tensors, **inputs.options, settings=settings)
    return judge([measure(out, Reference(problem, inputs, 0, True))], problem.dtype)


if __name__ == "__main__":
    serve(run_case)
