"""The Triton LayerNorm is one: shown on a CPU, in the interpreter, at the sizes that break tiles."""

import contextlib

import pytest
from interpreter import WHOLE_GRIDS, interpreting, poisoning, replaced, serve
from selection import telling

COLS = (1, 2, 63, 64, 65, 127, 129, 1000, 4096, 5000)
TILES = [(1, 4), (2, 4), (8, 4), (64, 4)]
DTYPES = ("float16", "bfloat16", "float32")


@pytest.fixture(scope="module")
def interpreter():
    yield from interpreting(__file__)


def assert_right(result):
    assert "raised" not in result, result["raised"]
    assert result["correct"], result["why"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", telling(COLS, 1, 65, 1000, why=WHOLE_GRIDS))
def test_is_right_at_edge_sizes(interpreter, cols, dtype):
    for rows in (1, 7 if cols > 200 else 65):
        assert_right(interpreter.run(rows=rows, cols=cols, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", telling([16_384, 16_385, 24_576], 16_385, why=WHOLE_GRIDS))
def test_long_rows_are_right_held_or_in_blocks(interpreter, cols, dtype):
    assert_right(interpreter.run(rows=2, cols=cols, dtype=dtype))


@pytest.mark.parametrize("tile", telling(TILES, (2, 4), (64, 4), why=WHOLE_GRIDS), ids=str)
@pytest.mark.parametrize("cols", [64, 100])
def test_every_tile_is_right(interpreter, cols, tile):
    for rows in (1, 8, 65):
        assert_right(interpreter.run(rows=rows, cols=cols, tile=tile))


def test_two_long_rows_in_a_program_are_right(interpreter):
    for rows in (1, 3, 4):
        assert_right(interpreter.run(rows=rows, cols=9000, tile=[2, 16]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [100, 17_000], ids=["held", "in blocks"])
def test_a_mean_far_from_zero_costs_no_variance(interpreter, cols, dtype):
    assert_right(interpreter.run(rows=3, cols=cols, dtype=dtype, shifted_by=30.0))


@pytest.mark.parametrize("layout", ["transposed", "every other", "followed by NaN"])
@pytest.mark.parametrize("cols", [100, 17_000], ids=["held", "in blocks"])
def test_takes_any_strides_and_reads_nothing_beyond(interpreter, cols, layout):
    assert_right(interpreter.run(rows=3, cols=cols, layout=layout))


@pytest.mark.parametrize("cols", [64, 100, 17_000])
def test_nothing_of_a_poisoned_output_is_left(interpreter, cols):
    result = interpreter.run(rows=65 if cols < 1000 else 2, cols=cols, poison_output=True)
    assert result["poisoned"] == 1, "the output did not come from torch.empty, so this test poisons nothing"
    assert_right(result)


@pytest.mark.parametrize("change, reason", [({"dtype": "float64"}, "dtypes are"), ({"wrong_cols": 3}, "needs (rows,")])
def test_says_what_it_cannot_do(interpreter, change, reason):
    raised = interpreter.run(**{"rows": 8, "cols": 8} | change)["raised"]
    assert "Unsupported" in raised and reason in raised


# --- in the child -----------------------------------------------------------------------------------------------------


def run_case(
    rows,
    cols,
    dtype="float16",
    tile=None,
    layout="contiguous",
    shifted_by=0.0,
    wrong_cols=None,
    poison_output=False,
):
    """Runs the kernel once and judges it as the instrument does."""
    import torch

    from kernels.analysis.correctness import judge
    from kernels.child.reference import Reference, measure
    from kernels.operations.base import Inputs
    from kernels.operations.layer_norm import LayerNorm
    from kernels.operations.layer_norm import triton_layer_norm as module

    problem = LayerNorm(dtype="float32" if dtype == "float64" else dtype, rows=rows, cols=cols)
    inputs = problem.inputs("cpu", seed=rows + cols)
    x, weight, bias = (t.to(getattr(torch, dtype)) for t in inputs.tensors)
    inputs = Inputs((x + shifted_by, weight, bias), inputs.options)
    x, weight, bias = inputs.tensors
    poisoned = []
    with contextlib.ExitStack() as stack:
        if poison_output:
            stack.enter_context(replaced(torch, "empty", poisoning(torch.empty, poisoned)))
        tile = module.Tile(*tile) if tile else module.tiles(rows, cols, x.element_size())
        eps = inputs.options["eps"]
        out = module.launch(laid_out(x, layout), weight[:wrong_cols], bias[:wrong_cols], eps, tile)
    return {"poisoned": len(poisoned)} | judge([measure(out, Reference(problem, inputs, 0, True))], dtype)


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
