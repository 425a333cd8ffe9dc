"""The settings that Triton kernels declare: right in the interpreter, and refused where they cannot be."""

import importlib

import pytest
from interpreter import interpreting, serve

from kernels import catalog

GEMM = {"block_m": 16, "block_n": 32, "block_k": 32, "warps": 4, "stages": 2, "tma": False, "persistent": True}
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
]
REFUSED = [
    ("layer_norm", {"rows": 64, "cols": 4096}, {"rows": 64, "warps": 1}, "8192 elements a thread"),
    ("layer_norm", {"rows": 2, "cols": 20_000}, {"rows": 2, "warps": 4}, "rows=1"),
    ("softmax", {"rows": 4, "cols": 300}, {"rows": 1, "warps": 1, "block": "8x1024"}, "is longer than a block"),
    ("softmax", {"rows": 4, "cols": 300}, {"rows": 1, "warps": 32, "block": "held"}, "0.5 elements a thread"),
    ("gelu", {"rows": 4, "cols": 300}, {"block": 256, "warps": 16}, "0.5 elements a thread"),
    ("gemm", {"m": 20, "n": 40, "k": 70}, GEMM | {"block_m": 256, "block_n": 256}, "512 sums a thread"),
    ("gemm", {"m": 20, "n": 40, "k": 70}, GEMM | {"block_n": 256, "block_k": 256, "stages": 5}, "of shared memory"),
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


@pytest.mark.parametrize("operation", sorted({operation for operation, *_ in RIGHT}))
def test_what_is_tried_here_is_in_the_space(operation):
    (info,) = [one for one in catalog.kernels(operation) if one.space]
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

    module = importlib.import_module(f"kernels.operations.{operation}.triton_{operation}")
    problem = get_operation(operation)(dtype="float16", **sizes)
    inputs = problem.inputs("cpu", 3)
    out = getattr(module, f"triton_{operation}")(*inputs.tensors, **inputs.options, settings=settings)
    return judge([measure(out, Reference(problem, inputs, 0, True))], "float16")


if __name__ == "__main__":
    serve(run_case)
