"""The Triton kernels of the operations that memory limits are right, in the interpreter, at the sizes that break tiles; and
they compile for Hopper without a GPU."""

import contextlib
import importlib

import pytest
from compiling import compiled
from interpreter import WHOLE_GRIDS, interpreting, poisoning, replaced, serve
from selection import telling

DTYPES = ("float16", "bfloat16", "float32")
ACROSS = {
    "softmax": "cols", "rms_norm": "cols", "cross_entropy": "vocab", "gelu": "cols", "swish": "cols", "mse_loss": "cols",
}  # fmt: skip
"""The operations, and the name of their columns."""
HELD = ("softmax", "rms_norm", "cross_entropy")
"""Those whose rows are held in registers, or read in blocks if they are too long."""
SHAPES = ((1, 2), (7, 1000), (65, 63), (129, 64), (64, 65), (5, 129), (3, 5000), (1, 128))
LONG = ((2, 16_385), (2, 16_384), (1, 24_576), (3, 40_000))
FOR_HOPPER = "compiling every Triton kernel for every dtype: `make test` compiles one of each"


@pytest.fixture(scope="module")
def interpreter():
    yield from interpreting(__file__)


def assert_right(result):
    assert "raised" not in result, result["raised"]
    assert result["correct"], result["why"]


def sized(operation, rows, across):
    return {"rows": rows, ACROSS[operation]: across}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", telling(SHAPES, (7, 1000), (65, 63), (129, 64), why=WHOLE_GRIDS), ids=str)
@pytest.mark.parametrize("operation", ACROSS)
def test_is_right_at_edge_sizes(interpreter, operation, shape, dtype):
    assert_right(interpreter.run(operation=operation, sizes=sized(operation, *shape), dtype=dtype))


@pytest.mark.parametrize("distribution", ["x30", "large_mean", "outliers", "tiny"])
@pytest.mark.parametrize("dtype", telling(DTYPES, "bfloat16", why=WHOLE_GRIDS))
@pytest.mark.parametrize("operation", ACROSS)
def test_is_right_on_unusual_inputs(interpreter, operation, dtype, distribution):
    case = {"sizes": sized(operation, 33, 200), "dtype": dtype, "distribution": distribution}
    assert_right(interpreter.run(operation=operation, **case))


@pytest.mark.parametrize("dtype", telling(DTYPES, "bfloat16", why=WHOLE_GRIDS))
@pytest.mark.parametrize("distribution", ["normal", "x30", "outliers"])
@pytest.mark.parametrize("shape", [(5, 2), (17, 100), (4, 1000)], ids=str)
@pytest.mark.parametrize("operation", HELD)
def test_rows_in_blocks_are_right(interpreter, operation, shape, dtype, distribution):
    """Small blocks: several for a row, of which the last is not full."""
    case = {"sizes": sized(operation, *shape), "dtype": dtype, "distribution": distribution}
    assert_right(interpreter.run(operation=operation, in_blocks=True, **case))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", telling(LONG, why=WHOLE_GRIDS), ids=str)
@pytest.mark.parametrize("operation", HELD)
def test_long_rows_are_right(interpreter, operation, shape, dtype):
    assert_right(interpreter.run(operation=operation, sizes=sized(operation, *shape), dtype=dtype))


TILES = {operation: [(1, 4), (8, 4), (64, 4), (1, 4, 1, 256), (1, 4, 4, 64)] for operation in HELD} | {
    "gelu": [(128, 4), (1024, 4)],
    "swish": [(128, 4), (1024, 4)],
    "mse_loss": [(128, 4, 1), (256, 4, 16)],
}


@pytest.mark.thorough(WHOLE_GRIDS)
@pytest.mark.parametrize("shape", [(1, 129), (65, 100), (64, 128)], ids=str)
@pytest.mark.parametrize("operation, tile", [(op, tile) for op, tiles in TILES.items() for tile in tiles], ids=str)
def test_every_tile_is_right(interpreter, operation, tile, shape):
    assert_right(interpreter.run(operation=operation, sizes=sized(operation, *shape), tile=tile))


def test_gelu_keeps_the_digits_of_its_left_tail(interpreter):
    """From -12 to 12. F.gelu in float32 loses all digits below -6, where 1 + erf is 0."""
    found = interpreter.run(operation="gelu", sizes={}, tail=True)
    assert found["error"] < 1e-5  # of which x^2 in float32 has most
    assert found["of_pytorch"] > 0.1, "PyTorch keeps them, so this test tells nothing"
    assert found["at_infinity"] == "inf" and found["of_nan"] == "nan"


@pytest.mark.parametrize("layout", ["transposed", "every other", "followed by NaN"])
@pytest.mark.parametrize("in_blocks", [False, True], ids=["", "in blocks"])
@pytest.mark.parametrize("operation", ACROSS)
def test_takes_any_strides_and_reads_nothing_beyond(interpreter, operation, in_blocks, layout):
    case = {"sizes": sized(operation, 6, 100), "layout": layout, "in_blocks": in_blocks and operation in HELD}
    assert_right(interpreter.run(operation=operation, **case))


@pytest.mark.parametrize("in_blocks", [False, True], ids=["", "in blocks"])
@pytest.mark.parametrize("operation", ACROSS)
def test_nothing_of_a_poisoned_output_is_left(interpreter, operation, in_blocks):
    case = {"sizes": sized(operation, 65, 100), "in_blocks": in_blocks and operation in HELD}
    result = interpreter.run(operation=operation, poison_output=True, **case)
    assert result["poisoned"], "the output did not come from torch.empty, so this test poisons nothing"
    assert_right(result)


@pytest.mark.parametrize("operation", ACROSS)
def test_says_what_it_cannot_do(interpreter, operation):
    raised = interpreter.run(operation=operation, sizes=sized(operation, 8, 8), dtype="float64")["raised"]
    assert "Unsupported" in raised and "float64" in raised


COMPILED = {
    "cross_entropy": [{"rows": 8192, "vocab": 32000}, {"rows": 16384, "vocab": 768}, {"rows": 100, "vocab": 100}],
    "gelu": [
        {"rows": 16384, "cols": 4096},
        {"rows": 16384, "cols": 4096, "approximate": "tanh"},
        {"rows": 100, "cols": 100},
    ],
    "mse_loss": [{"rows": 16384, "cols": 4096}, {"rows": 100, "cols": 100}],
    "swish": [{"rows": 16384, "cols": 4096}, {"rows": 100, "cols": 100}],
    "rms_norm": [{"rows": 16384, "cols": 4096}, {"rows": 4096, "cols": 32768}, {"rows": 1000, "cols": 100}],
    "softmax": [{"rows": 16384, "cols": 4096}, {"rows": 4096, "cols": 32768}, {"rows": 1000, "cols": 100}],
}


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("dtype", telling(DTYPES, "bfloat16", why=FOR_HOPPER))
@pytest.mark.parametrize(
    "operation, sizes",
    [
        pytest.param(
            *(operation, sizes),
            marks=[pytest.mark.thorough(FOR_HOPPER)] if number else [],
            id=f"{operation} {', '.join(map(str, sizes.values()))}",
        )
        for operation, of in COMPILED.items()
        for number, sizes in enumerate(of)
    ],
)
def test_compiles_for_hopper(operation, sizes, dtype):
    """The first sizes are those of the catalogue's config: their rows are read with 16 bytes for each thread at a time."""
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    from torch._subclasses import FakeTensorMode

    from kernels.catalog import get_operation

    problem = get_operation(operation)(dtype=dtype, **sizes)
    module = importlib.import_module(f"kernels.operations.{operation}.triton_{operation}")
    with FakeTensorMode():
        inputs = problem.inputs("cpu", 1)
        found = compiled(module, lambda: getattr(module, f"triton_{operation}")(*inputs.tensors, **inputs.options))
    assert found
    if sizes == COMPILED[operation][0]:
        assert any("ld.global.v4.b32" in kernel.asm["ptx"] for kernel in found)


# --- in the child -----------------------------------------------------------------------------------------------------


def run_case(
    operation,
    sizes,
    dtype="float16",
    distribution="normal",
    tile=None,
    layout="contiguous",
    in_blocks=False,
    poison_output=False,
    tail=False,
):
    """Runs the kernel once and judges it as the instrument does."""
    import torch

    if tail:
        return tail_of_gelu()

    from kernels.analysis.correctness import judge
    from kernels.catalog import get_operation
    from kernels.child.reference import Reference, measure
    from kernels.operations.base import Inputs

    module = importlib.import_module(f"kernels.operations.{operation}.triton_{operation}")
    problem = get_operation(operation)(dtype="float32" if dtype == "float64" else dtype, **sizes)
    inputs = problem.inputs("cpu", sum(sizes.values()), distribution)
    tensors = [t.to(getattr(torch, dtype)) if t.is_floating_point() else t for t in inputs.tensors]
    inputs, poisoned = Inputs(tuple(tensors), inputs.options), []
    with contextlib.ExitStack() as stack:
        if poison_output:
            stack.enter_context(replaced(torch, "empty", poisoning(torch.empty, poisoned)))
        if tile:
            stack.enter_context(replaced(module, "tiles", lambda *_: module.Tile(*tile)))
        if in_blocks:
            stack.enter_context(replaced(module, "tiles", lambda *_: module.Tile(1, 4, depth=2, lanes=64)))
        laid = [laid_out(t, layout) if t.ndim == 2 else t for t in inputs.tensors]
        out = getattr(module, f"triton_{operation}")(*laid, **inputs.options)
    reference = Reference(problem, inputs, 0, True, distribution)
    return {"poisoned": len(poisoned)} | judge([measure(out, reference)], dtype)


def tail_of_gelu():
    """The largest relative errors of triton-gelu and F.gelu in float32 from -12 to 12; what they make of inf and NaN."""
    import torch

    from kernels.operations.gelu.triton_gelu import triton_gelu

    def error(found):
        return ((found.double() - right) / right).abs().max().item()

    x = torch.linspace(-12, 12, 20_000)
    right = x.double() * torch.special.erfc(x.double() * -(0.5**0.5)) / 2
    ends = triton_gelu(torch.tensor([[float("inf"), float("nan")]]), approximate="none")
    return {
        "error": error(triton_gelu(x.view(20, 1000), approximate="none").view(-1)),
        "of_pytorch": error(torch.nn.functional.gelu(x)),
        "at_infinity": str(ends[0, 0].item()),
        "of_nan": str(ends[0, 1].item()),
    }


def laid_out(x, layout):
    """The same numbers with other strides."""
    import torch

    match layout:
        case "contiguous":
            return x
        case "transposed":
            return x.mT.contiguous().mT
        case "every other":
            return x.repeat_interleave(2, 0)[::2]
        case "followed by NaN":
            return torch.cat([x, torch.full_like(x, float("nan"))], 1)[:, : x.shape[1]]
    raise ValueError(layout)


if __name__ == "__main__":
    serve(run_case)
