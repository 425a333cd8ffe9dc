"""triton-flash-decode in the interpreter: right at the lengths, groups and head dims that break tiles, in every way that it has.
And compiled for Hopper without a GPU. Its rules are data: each fits the chip, and names its evidence or none.
"""

from pathlib import Path
from unittest import mock

import pytest
from compiling import compiled
from interpreter import WHOLE_GRIDS, interpreting, poisoning, replaced, serve
from selection import telling

KEYS = (1, 63, 64, 65, 127, 129, 300)
WAYS = {
    "rows": {},
    "keys": {"swapped": True},
    "pointers": {"tma": False},
    "pointers, keys": {"tma": False, "swapped": True},
}
ROOT = Path(__file__).parents[2]
FOR_HOPPER = "compiling for Hopper: `make test` takes one of each"


@pytest.fixture(scope="module")
def interpreter():
    yield from interpreting(__file__)


def assert_right(found):
    assert "raised" not in found, found["raised"]
    assert found["correct"], found["why"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("queries", [1, 3, 16])
@pytest.mark.parametrize("keys", telling(KEYS, 1, 65, 129, why=WHOLE_GRIDS))
def test_the_table_is_right_at_edge_lengths(interpreter, keys, queries, dtype):
    for causal in (False, True):
        if keys >= queries:
            assert_right(interpreter.run(seq_len=queries, kv_len=keys, causal=causal, dtype=dtype))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("keys", telling([17, 128, 129, 500], 129, why=WHOLE_GRIDS))
def test_every_way_is_right(interpreter, keys, way):
    """From one share of the keys to a share for each block of 16."""
    for programs in (1, 3, 16):
        tile = {"keys": 16, "warps": 4, "stages": 2, "programs": programs} | WAYS[way]
        found = interpreter.run(seq_len=4, kv_len=keys, causal=True, dtype="bfloat16", tile=tile)
        assert_right(found)


@pytest.mark.parametrize("way", ["rows", "keys"])
@pytest.mark.parametrize(
    "group", telling([(32, 8, 1), (32, 1, 4), (32, 1, 16), (7, 1, 5)], (32, 1, 16), why=WHOLE_GRIDS), ids=str
)
def test_heads_of_a_group_share_tiles(interpreter, group, way):
    heads, kv_heads, queries = group
    tile = {"keys": 32, "warps": 4, "stages": 2, "programs": 8} | WAYS[way]
    sizes = {"batch": 1, "heads": heads, "kv_heads": kv_heads, "seq_len": queries, "kv_len": 130, "head_dim": 32}
    assert_right(interpreter.run(**sizes, causal=True, tile=tile))


@pytest.mark.parametrize("head_dim", telling([32, 40, 64, 96, 128, 256], 40, 128, why=WHOLE_GRIDS))
def test_does_every_head_dim(interpreter, head_dim):
    for way in ("rows", "keys"):
        tile = {"keys": 32, "warps": 4, "stages": 2, "programs": 2} | WAYS[way]
        assert_right(interpreter.run(seq_len=2, kv_len=129, head_dim=head_dim, causal=True, tile=tile))


@pytest.mark.parametrize("distribution", ["x30", "near_constant", "outliers", "drift"])
def test_is_right_on_unusual_inputs(interpreter, distribution):
    for swapped in (False, True):
        tile = {"keys": 32, "warps": 4, "stages": 2, "programs": 4, "swapped": swapped}
        assert_right(interpreter.run(seq_len=3, kv_len=200, causal=True, distribution=distribution, tile=tile))


def test_a_row_that_sees_no_key_of_a_share_is_right(interpreter):
    """16 causal queries, blocks of 16 keys, a share for each: the first query sees none of the last block."""
    tile = {"keys": 16, "warps": 4, "stages": 2, "programs": 16}
    assert_right(interpreter.run(batch=1, seq_len=16, kv_len=48, causal=True, tile=tile))
    assert_right(interpreter.run(batch=1, seq_len=16, kv_len=48, causal=True, tile=tile | {"swapped": True}))


def test_nothing_of_poisoned_memory_is_left(interpreter):
    """Neither the output nor a part of it was there before."""
    for programs, made in ((4, 2), (0, 2)):
        tile = {"keys": 32, "warps": 4, "stages": 2, "programs": programs}
        found = interpreter.run(seq_len=3, kv_len=200, causal=True, tile=tile, poison_output=True)
        assert found["poisoned"] == made, "the output and the parts did not come from torch.empty"
        assert_right(found)


def test_a_mask_that_ends_a_key_early_is_seen(interpreter):
    """The same values, told that they are not causal: the instrument sees the difference."""
    found = interpreter.run(seq_len=4, kv_len=40, causal=True, told={"causal": False})
    assert not found["correct"]


@pytest.mark.parametrize(
    "sizes, reason",
    [
        ({"seq_len": 17, "kv_len": 40}, "seq_len is 17"),
        ({"seq_len": 1, "kv_len": 40, "head_dim": 44}, "head_dim is 44"),
    ],
)
def test_says_what_it_cannot_do(interpreter, sizes, reason):
    raised = interpreter.run(**sizes)["raised"]
    assert "Unsupported" in raised and reason in raised


# --- the rules --------------------------------------------------------------------------------------------------------


def test_every_problem_has_a_tile_and_every_rule_is_reached():
    module = pytest.importorskip("kernels.operations.attention.triton_flash_decode")
    seen = set()
    for device in (
        module.Device(132, 232_448, True),
        module.Device(108, 166_912, False),
        module.Device(142, 101_376, False),
    ):
        for rows in (1, 4, 16, 32, 64, 128, 512):
            for head_dim in (32, 96, 128, 256):
                for heads in (1, 8, 16, 128):
                    for keys in (1, 1024, 131_072):
                        tile = module.tiles(rows, head_dim, heads, keys, device)
                        seen.add(tile)
                        buffers = tile.stages - (not device.tma)  # of a product by mma the last one is in registers
                        width = module.triton.next_power_of_2(head_dim)
                        needed = 4 * tile.keys * width * buffers + 2 * min(128, max(16, rows)) * width
                        assert needed <= device.shared_bytes - 1024, (device, rows, head_dim, tile)
                        assert device.tma or not (tile.tma or tile.early)
    assert {one.tile for one in module.RULES} <= seen, "a rule is hidden by those before it"


def test_evidence_is_a_file():
    module = pytest.importorskip("kernels.operations.attention.triton_flash_decode")
    for one in module.RULES:
        assert not one.evidence or (ROOT / "docs" / "measurements" / one.evidence).is_file(), one


# --- compiled for a GPU -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head_dim", telling([64, 96, 128, 256], 96, 128, why=FOR_HOPPER))
@pytest.mark.parametrize("queries, kv_heads", [(1, 8), (16, 8), (16, 1)], ids=str)
def test_every_rule_compiles_and_the_second_launch_waits_for_the_first(queries, kv_heads, head_dim):
    first, second = launched(queries, kv_heads, head_dim)
    assert ("cp.async.bulk.tensor" in first.asm["ptx"]) is (head_dim != 96)
    assert first.metadata.shared <= 227 * 1024
    ptx = first.asm["ptx"], second.asm["ptx"]
    assert "griddepcontrol.launch_dependents" in ptx[0]
    assert ptx[1].index("griddepcontrol.wait") < ptx[1].index("ld.global")


@pytest.mark.parametrize("swapped", [False, True], ids=["rows", "keys"])
def test_keys_fill_what_wgmma_wants_and_few_rows_do_not(swapped):
    first, _ = launched(1, 8, 128, keys=128, warps=4, stages=3, swapped=swapped)
    assert ("wgmma" in first.asm["ptx"]) is swapped


def launched(queries, kv_heads, head_dim, **tile):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.operations.attention import triton_flash_decode as module

    shapes = ((32, queries), (kv_heads, 8192))
    q, k = (torch.empty(1, heads, length, head_dim, dtype=torch.bfloat16, device="meta") for heads, length in shapes)
    hopper = module.Device(132, 227 * 1024, True)
    chosen = module.Tile(**tile) if tile else module.tiles(32 // kv_heads * queries, head_dim, kv_heads, 8192, hopper)
    with mock.patch.object(module, "_device", lambda _: hopper):
        return compiled(module, lambda: module.launch(q, k, k, True, 0.1, chosen))


# --- in the child -----------------------------------------------------------------------------------------------------


def run_case(tile=None, told=None, distribution="normal", poison_output=False, **sizes):
    """Runs the kernel once and judges it by the instrument's rule."""
    import contextlib

    import torch

    from kernels.analysis.correctness import judge
    from kernels.child.reference import Reference, measure
    from kernels.operations.attention import Attention
    from kernels.operations.attention import triton_flash_decode as module

    problem = Attention(**{"batch": 2, "heads": 4, "kv_heads": 2, "head_dim": 64} | sizes)
    inputs = problem.inputs("cpu", 3, distribution)
    options = inputs.options | (told or {})
    poisoned = []
    with contextlib.ExitStack() as stack:
        if poison_output:
            stack.enter_context(replaced(torch, "empty", poisoning(torch.empty, poisoned)))
        if tile:
            out = module.launch(*inputs.tensors, options["causal"], options["scale"], module.Tile(**tile))
        else:
            out = module.triton_flash_decode(*inputs.tensors, **options)
    said = judge([measure(out, Reference(problem, inputs, 3, True, distribution))], problem.dtype)
    return {"correct": said["correct"], "why": said["why"], "poisoned": len(poisoned)}


if __name__ == "__main__":
    serve(run_case)
