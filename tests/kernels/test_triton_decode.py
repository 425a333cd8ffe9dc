"""triton-decode in the interpreter: right at the lengths, groups and head dims that break tiles, however its parts are added.
And compiled for Hopper without a GPU: loads by TMA, and the memory order that adding within one launch needs.
"""

import re
from unittest import mock

import pytest
from compiling import compiled
from interpreter import WHOLE_GRIDS, interpreting, poisoning, replaced, serve
from selection import telling

KEYS = (1, 63, 64, 65, 127, 129, 300)
WAYS = {
    "last": {},
    "apart": {"reduction": "apart"},
    "early": {"reduction": "early"},
    "swapped": {"swapped": True, "reduction": "apart"},
    "swapped, last": {"swapped": True},
    "pointers": {"tma": False},
}
FOR_HOPPER = "compiling for Hopper: `make test` takes one of each"


@pytest.fixture(scope="module")
def interpreter():
    yield from interpreting(__file__)


def assert_right(found):
    assert "raised" not in found, found["raised"]
    assert found["correct"], found["why"]
    assert not found["counters"], "a counter was not set back"


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


@pytest.mark.parametrize("way", ["last", "apart", "swapped"])
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
    for way in ("last", "apart"):
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
    for way in ("last", "apart"):
        tile = {"keys": 32, "warps": 4, "stages": 2, "programs": 4} | WAYS[way]
        found = interpreter.run(seq_len=3, kv_len=200, causal=True, tile=tile, poison_output=True)
        assert found["poisoned"] == 2, "the output and the parts did not come from torch.empty"
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


# --- compiled for a GPU -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head_dim", telling([64, 128, 256], 128, why=FOR_HOPPER))
def test_parts_are_added_in_the_order_that_memory_needs(head_dim):
    """A barrier, an acq_rel addition for the whole GPU, then loads past L1, in this order."""
    (made,) = launched(head_dim, keys=32, warps=4, stages=2, programs=2)
    ptx = made.asm["ptx"]
    assert "cp.async.bulk.tensor" in ptx
    added = re.search(
        r"atom\.(?:global\.)?gpu\.(?:global\.)?acq_rel|atom\.global\.acq_rel\.gpu|atom\.acq_rel\.gpu", ptx
    )
    assert added, re.findall(r"atom\S+", ptx)
    assert ptx.rindex("bar.sync", 0, added.start()) > ptx.rindex("st.global", 0, added.start())
    assert "ld.global.cg" not in ptx[: added.start()] and "ld.global.cg" in ptx[added.start() :]
    assert "ld.global.nc" not in ptx


@pytest.mark.parametrize("swapped", [False, True], ids=["rows", "keys"])
def test_a_tile_of_keys_is_multiplied_by_wgmma(swapped):
    (made, _) = launched(128, keys=64, warps=4, stages=3, programs=2, swapped=swapped, reduction="early")
    assert ("wgmma" in made.asm["ptx"]) is swapped
    assert made.metadata.shared <= 227 * 1024 // 2, "two programs fit a processor"


def launched(head_dim, **tile):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from kernels.operations.attention import triton_decode as module

    q, k = (torch.empty(1, h, s, head_dim, dtype=torch.bfloat16, device="meta") for h, s in ((32, 1), (8, 8192)))
    hopper = module.Device(132, 227 * 1024, True)
    counters = torch.empty(1, dtype=torch.int32, device="meta")
    with (
        mock.patch.object(module, "_device", lambda _: hopper),
        mock.patch.object(module, "_counters", lambda _: counters),
    ):
        return compiled(module, lambda: module.launch(q, k, k, True, 0.1, module.Tile(**tile)))


# --- in the child -----------------------------------------------------------------------------------------------------


def run_case(tile=None, told=None, distribution="normal", poison_output=False, **sizes):
    """Runs the kernel twice, for its counters must serve the next launch, and judges the second by the instrument's rule."""
    import contextlib

    import torch

    from kernels.analysis.correctness import judge
    from kernels.child.reference import Reference, measure
    from kernels.operations.attention import Attention
    from kernels.operations.attention import triton_decode as module

    problem = Attention(**{"batch": 2, "heads": 4, "kv_heads": 2, "head_dim": 64} | sizes)
    inputs = problem.inputs("cpu", 3, distribution)
    options = inputs.options | (told or {})
    poisoned = []
    with contextlib.ExitStack() as stack:
        if poison_output:
            stack.enter_context(replaced(torch, "empty", poisoning(torch.empty, poisoned)))
        for _ in range(2):
            poisoned.clear()
            if tile:
                chosen = module.Tile(**tile)
                out = module.launch(*inputs.tensors, options["causal"], options["scale"], chosen)
            else:
                out = module.triton_decode(*inputs.tensors, **options)
    said = judge([measure(out, Reference(problem, inputs, 3, True, distribution))], problem.dtype)
    left = int(module._counters(out.device).count_nonzero())
    return {"correct": said["correct"], "why": said["why"], "poisoned": len(poisoned), "counters": left}


if __name__ == "__main__":
    serve(run_case)
