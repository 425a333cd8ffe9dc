"""The Triton matrix product is one: shown on a CPU, in the interpreter, at the sizes that break tiles."""

import contextlib

import pytest
from interpreter import WHOLE_GRIDS, interpreting, poisoning, replaced, serve
from selection import telling

EDGES = (1, 63, 64, 65, 127, 129)
SIZES = [(128, 128, 64), (136, 72, 40), (65, 129, 63), (300, 24, 8)]
DTYPES = ("float16", "bfloat16")


@pytest.fixture(scope="module")
def interpreter():
    yield from interpreting(__file__)


def assert_right(result):
    assert "raised" not in result, result["raised"]
    assert result["correct"], result["why"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", telling(EDGES, 1, 65, why=WHOLE_GRIDS))
def test_is_right_at_edge_sizes(interpreter, size, dtype):
    """Each of the three in turn, the others off every tile's edge."""
    for m, n, k in ((size, 65, 63), (65, size, 63), (63, 65, size)):
        assert_right(interpreter.run(m=m, n=n, k=k, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("persistent", [False, True], ids=["a tile each", "persistent"])
@pytest.mark.parametrize("tma", [False, True], ids=["pointers", "tma"])
@pytest.mark.parametrize("sizes", telling(SIZES, (136, 72, 40), why=WHOLE_GRIDS), ids=str)
def test_every_way_is_right(interpreter, sizes, tma, persistent, dtype):
    m, n, k = sizes
    for blocks in ((32, 32, 32), (64, 16, 32)):
        tile = [*blocks, 4, 2, tma, persistent]
        assert_right(interpreter.run(m=m, n=n, k=k, dtype=dtype, tile=tile, processors=3))


@pytest.mark.parametrize("rows_of_tiles", telling([1, 7, 8, 9, 17], 9, why=WHOLE_GRIDS))
def test_groups_leave_no_tile_out(interpreter, rows_of_tiles):
    assert_right(interpreter.run(m=16 * rows_of_tiles, n=80, k=16, tile=[16, 16, 16, 4, 2]))


@pytest.mark.parametrize("tma", [False, True], ids=["pointers", "tma"])
@pytest.mark.parametrize("layout", ["transposed", "every other", "followed by NaN"])
def test_takes_any_strides_and_reads_nothing_beyond(interpreter, layout, tma):
    assert_right(interpreter.run(m=65, n=40, k=72, layout=layout, tile=[32, 32, 32, 4, 2, tma]))


@pytest.mark.parametrize("sizes", [(65, 63, 1), (64, 64, 64), (1, 1, 200)], ids=str)
def test_nothing_of_a_poisoned_output_is_left(interpreter, sizes):
    m, n, k = sizes
    result = interpreter.run(m=m, n=n, k=k, poison_output=True)
    assert result["poisoned"] == 1, "the output did not come from torch.empty, so this test poisons nothing"
    assert_right(result)


def test_the_table_has_a_right_tile_for_every_size_class(interpreter):
    for device in ([2, 232448, True], [2, 101376, False]):
        for m, n in ((1, 72), (72, 1), (40, 72), (129, 65), (129, 136), (129, 520)):
            assert_right(interpreter.run(m=m, n=n, k=24, device=device))


@pytest.mark.parametrize("shared_bytes, tma", [(101_376, True), (101_376, False), (166_912, False), (232_448, True)])
def test_every_tile_of_the_table_fits_the_shared_memory_of_its_device(shared_bytes, tma):
    """8.6 and 8.9, 12.x, 8.0, 9.0: a slice of A and of B for each stage; the interpreter has no such limit."""
    triton_gemm = pytest.importorskip("kernels.operations.gemm.triton_gemm")
    device, seen = triton_gemm.Device(132, shared_bytes, tma), set()
    for m in (1, 16, 17, 256, 1024, 2048, 4096, 8192):
        for n in (1, 16, 17, 256, 1024, 2048, 4096, 8192):
            tile = triton_gemm.tiles(m, n, device)
            seen.add(tile)
            leftover = 2 * tile.block_m * tile.block_n * tile.persistent
            needed = 2 * (tile.block_m + tile.block_n) * tile.block_k * tile.stages + leftover
            assert needed <= shared_bytes - 1024, (m, n, tile)
            assert device.tma or not tile.tma
    assert len(seen) >= 4


@pytest.mark.parametrize("change, reason", [({"dtype": "float32"}, "dtypes are"), ({"wrong_k": 3}, "needs (M, K)")])
def test_says_what_it_cannot_do(interpreter, change, reason):
    raised = interpreter.run(**{"m": 8, "n": 8, "k": 8} | change)["raised"]
    assert "Unsupported" in raised and reason in raised


# --- in the child -----------------------------------------------------------------------------------------------------


def run_case(
    m,
    n,
    k,
    dtype="float16",
    tile=None,
    processors=None,
    device=None,
    layout="contiguous",
    wrong_k=None,
    poison_output=False,
):
    """Runs the kernel once and judges it as the instrument does."""
    import torch

    from kernels.analysis.correctness import judge
    from kernels.child.reference import Reference, measure
    from kernels.operations.gemm import Gemm
    from kernels.operations.gemm import triton_gemm as module

    problem = Gemm(dtype=dtype, m=m, n=n, k=k)
    inputs = problem.inputs("cpu", seed=m + n + k)
    a, b = (laid_out(x, layout) for x in inputs.tensors)
    poisoned = []
    with contextlib.ExitStack() as stack:
        if poison_output:
            stack.enter_context(replaced(torch, "empty", poisoning(torch.empty, poisoned)))
        if device or processors:
            chosen = module.Device(*(device or (processors, 232448, True)))
            stack.enter_context(replaced(module, "_device", lambda _: chosen))
        out = module.launch(a, b, module.Tile(*tile)) if tile else module.triton_gemm(a[:, :wrong_k], b)
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
            width = x.shape[1]
            x = torch.cat([x, torch.full_like(x, float("nan"))], 1)
            return torch.cat([x, torch.full_like(x, float("nan"))], 0)[: x.shape[0], :width]
    raise ValueError(layout)


if __name__ == "__main__":
    serve(run_case)
