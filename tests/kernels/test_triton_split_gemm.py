"""triton-split-gemm in the interpreter: right at the sizes that break tiles, persistent and with K split.
And compiled for Hopper without a GPU. Its rules are data: each fits the chip, and names its evidence or none.
"""

from pathlib import Path
from unittest import mock

import pytest
from compiling import compiled
from interpreter import WHOLE_GRIDS, interpreting, poisoning, replaced, serve
from selection import telling

ROOT = Path(__file__).parents[2]
EDGES = (1, 63, 64, 65, 127, 129)
SIZES = [(128, 128, 64), (136, 72, 40), (65, 128, 64), (300, 24, 8)]
DTYPES = ("float16", "bfloat16")
WAYS = {
    "persistent": {},
    "in two parts": {"parts": 2, "group": 3},
    "split in 3": {"splits": 3},
    "split in 5": {"splits": 5, "group": 2},
}


@pytest.fixture(scope="module")
def interpreter():
    yield from interpreting(__file__)


def assert_right(found):
    assert "raised" not in found, found["raised"]
    assert found["correct"], found["why"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", telling(EDGES, 1, 65, why=WHOLE_GRIDS))
def test_the_rules_are_right_at_edge_sizes(interpreter, rows, dtype):
    for n, k in ((72, 136), (8, 264), (264, 8)):
        assert_right(interpreter.run(m=rows, n=n, k=k, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sizes", telling(SIZES, (136, 72, 40), why=WHOLE_GRIDS), ids=str)
def test_every_way_is_right(interpreter, sizes, way, dtype):
    m, n, k = sizes
    for blocks in ((32, 32, 16), (64, 16, 32)):
        tile = dict(zip(("block_m", "block_n", "block_k"), blocks, strict=True)) | {"warps": 4, "stages": 2} | WAYS[way]
        assert_right(interpreter.run(m=m, n=n, k=k, dtype=dtype, tile=tile))


@pytest.mark.parametrize("rows_of_tiles", telling([1, 7, 8, 9, 17], 9, why=WHOLE_GRIDS))
@pytest.mark.parametrize("splits", [1, 2])
def test_groups_leave_no_tile_out(interpreter, splits, rows_of_tiles):
    tile = {"block_m": 16, "block_n": 16, "block_k": 16, "warps": 4, "stages": 2, "splits": splits}
    assert_right(interpreter.run(m=16 * rows_of_tiles, n=80, k=32, tile=tile))


@pytest.mark.parametrize("way", ["persistent", "split in 3"])
def test_nothing_of_poisoned_memory_is_left(interpreter, way):
    tile = {"block_m": 32, "block_n": 32, "block_k": 16, "warps": 4, "stages": 2} | WAYS[way]
    found = interpreter.run(m=65, n=40, k=72, tile=tile, poison_output=True)
    assert found["poisoned"] == (1 if way == "persistent" else 2), "memory did not come from torch.empty"
    assert_right(found)


def test_sums_are_added_in_the_order_of_k(interpreter):
    """Numbers whose float32 sum depends on the order: it is that of K, from the first share to the last."""
    tile = {"block_m": 16, "block_n": 16, "block_k": 16, "warps": 4, "stages": 2, "splits": 3}
    assert interpreter.run(m=16, n=16, k=48, tile=tile, ordered=True) == {"value": 1.0}


@pytest.mark.parametrize("change, reason", [({"dtype": "float32"}, "dtypes are"), ({"k": 12}, "K is 12")])
def test_says_what_it_cannot_do(interpreter, change, reason):
    raised = interpreter.run(**{"m": 8, "n": 8, "k": 8} | change)["raised"]
    assert "Unsupported" in raised and reason in raised


# --- the rules --------------------------------------------------------------------------------------------------------


def test_every_product_has_a_rule_and_every_rule_fits_the_chip():
    module = pytest.importorskip("kernels.operations.gemm.triton_split_gemm")
    sides = (1, 16, 17, 64, 128, 256, 512, 1024, 2048, 4096, 16384, 262_144)
    seen = {module.rule(m, n, k) for m in sides for n in sides for k in (8, 4096, 65_536)}
    assert seen == set(module.RULES), "a rule is hidden by those before it"
    for one in module.RULES:
        tile = one.tile
        stored = tile.block_m * tile.block_n // tile.parts if tile.splits == 1 else 0
        needed = 2 * ((tile.block_m + tile.block_n) * tile.block_k * tile.stages + stored)
        assert needed <= 227 * 1024 - 1024, tile


def test_evidence_is_a_file():
    module = pytest.importorskip("kernels.operations.gemm.triton_split_gemm")
    for one in module.RULES:
        assert not one.evidence or (ROOT / "docs" / "measurements" / one.evidence).is_file(), one


# --- compiled for a GPU -----------------------------------------------------------------------------------------------


def test_persistent_tiles_come_and_go_by_tma():
    (made,) = launched(8192, 8192, 8192)
    ptx = made.asm["ptx"]
    assert "wgmma" in ptx
    assert "cp.async.bulk.tensor.2d.shared" in ptx and "cp.async.bulk.tensor.2d.global" in ptx
    assert made.metadata.shared <= 227 * 1024


def test_the_second_launch_waits_for_the_first():
    first, second = (made.asm["ptx"] for made in launched(512, 512, 16384))
    assert "griddepcontrol.launch_dependents" in first
    assert second.index("griddepcontrol.wait") < second.index("ld.global")
    assert "atom" not in first + second and "red.global" not in first + second


def launched(m, n, k):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.operations.gemm import triton_split_gemm as module

    a, b = (torch.empty(*shape, dtype=torch.bfloat16, device="meta") for shape in ((m, k), (k, n)))
    with mock.patch.object(module, "_processors", lambda _: 132):
        return compiled(module, lambda: module.triton_split_gemm(a, b))


# --- in the child -----------------------------------------------------------------------------------------------------


def run_case(m, n, k, dtype="float16", tile=None, poison_output=False, ordered=False):
    """Runs the kernel once and judges it by the instrument's rule."""
    import contextlib

    import torch

    from kernels.analysis.correctness import judge
    from kernels.child.reference import Reference, measure
    from kernels.operations.gemm import Gemm
    from kernels.operations.gemm import triton_split_gemm as module

    problem = Gemm(dtype=dtype, m=m, n=n, k=k)
    inputs = problem.inputs("cpu", seed=m + n + k)
    a, b = inputs.tensors
    if ordered:  # 2^26 + -2^26 + 1: the 1 is lost if it is added before the second term
        a, b = torch.zeros_like(a), torch.zeros_like(b)
        a[:, 0], a[:, 16], a[:, 32] = 2.0**13, -(2.0**13), 1.0
        b[0], b[16], b[32] = 2.0**13, 2.0**13, 1.0
    chosen, poisoned = module.Tile(**tile) if tile else module.rule(m, n, k).tile, []
    with contextlib.ExitStack() as stack:
        if poison_output:
            stack.enter_context(replaced(torch, "empty", poisoning(torch.empty, poisoned)))
        out = module.launch(a, b, chosen)
    if ordered:
        assert (out == out[0, 0]).all()
        return {"value": float(out[0, 0])}
    said = judge([measure(out, Reference(problem, inputs, 0, True))], dtype)
    return {"correct": said["correct"], "why": said["why"], "poisoned": len(poisoned)}


if __name__ == "__main__":
    serve(run_case)
