"""The Triton kernel of native sparse attention is right, in the interpreter, at the sizes that break tiles; and it compiles
for Hopper without a GPU."""

import contextlib

import pytest
from compiling import compiled
from interpreter import WHOLE_GRIDS, interpreting, poisoning, replaced, serve
from selection import telling

SIZES = {"batch": 1, "heads": 4, "groups": 2, "seq_len": 49, "head_dim": 32, "block_size": 16, "selected_blocks": 3}
EDGES = {
    "one token": {"seq_len": 1},
    "a block and a bit": {"seq_len": 65, "block_size": 64, "causal": True},
    "less than a block": {"seq_len": 63, "block_size": 64},
    "a block of one key": {"seq_len": 63, "block_size": 1, "selected_blocks": 5, "causal": True},
    "an odd block": {"seq_len": 65, "block_size": 24, "causal": True},
    "a long block": {"seq_len": 150, "block_size": 130, "selected_blocks": 2, "causal": True},
    "more slots than blocks": {"seq_len": 33, "selected_blocks": 9},
    "one slot": {"selected_blocks": 1, "causal": True},
    "two batches": {"batch": 2, "causal": True},
    "one group": {"groups": 1},
    "a group for each head": {"groups": 4, "causal": True},
    "three heads a group": {"heads": 6, "causal": True},
    "17 heads a group": {"heads": 17, "groups": 1, "seq_len": 31},
    "an odd head dim": {"head_dim": 17, "causal": True},
    "a long head": {"head_dim": 160, "seq_len": 33},
    "a scale": {"scale": 0.1, "causal": True},
    "a window": {"window": 20},
    "a causal window": {"window": 20, "causal": True},
    "a window of one key": {"window": 1, "causal": True},
    "a window over all": {"window": 49},
}

TOLD = (
    "one token", "an odd block", "three heads a group", "an odd head dim", "a causal window",
)  # fmt: skip


@pytest.fixture(scope="module")
def interpreter():
    yield from interpreting(__file__)


def assert_right(result):
    assert "raised" not in result, result["raised"]
    assert result["correct"], result["why"]


@pytest.mark.parametrize("edge", telling(EDGES, *TOLD, why=WHOLE_GRIDS))
def test_is_right_at_the_edges(interpreter, edge):
    assert_right(interpreter.run(sizes=SIZES | EDGES[edge], dtype="bfloat16"))


# float16 has the tiles of bfloat16.
@pytest.mark.thorough(WHOLE_GRIDS)
@pytest.mark.parametrize(
    ("dtype", "edge"), [*(("float32", edge) for edge in TOLD), *(("float16", edge) for edge in TOLD[:2])]
)
def test_is_right_at_some_edges_in_other_dtypes(interpreter, edge, dtype):
    assert_right(interpreter.run(sizes=SIZES | EDGES[edge], dtype=dtype))


@pytest.mark.parametrize(
    ("dtype", "distribution"),
    [
        ("float16", "outliers"),
        *(
            pytest.param("float16", name, marks=pytest.mark.thorough(WHOLE_GRIDS))
            for name in ("drift", "x30", "uniform")
        ),
        *(
            pytest.param(dtype, "outliers", marks=pytest.mark.thorough(WHOLE_GRIDS))
            for dtype in ("bfloat16", "float32")
        ),
    ],
)
def test_is_right_on_unusual_inputs(interpreter, distribution, dtype):
    assert_right(interpreter.run(sizes=SIZES | {"causal": True}, dtype=dtype, distribution=distribution))


@pytest.mark.parametrize("tile", telling([(16, 4, 1), (32, 4, 2), (128, 8, 2)], why=WHOLE_GRIDS), ids=str)
def test_every_tile_is_right(interpreter, tile):
    sizes = SIZES | {"block_size": 48, "seq_len": 129, "causal": True, "window": 30}
    assert_right(interpreter.run(sizes=sizes, tile=tile))


@pytest.mark.parametrize("layout", telling(["heads first", "followed by NaN"], "followed by NaN", why=WHOLE_GRIDS))
def test_takes_any_strides_and_reads_nothing_beyond(interpreter, layout):
    assert_right(interpreter.run(sizes=SIZES | {"causal": True}, layout=layout))


def test_nothing_of_a_poisoned_output_is_left(interpreter):
    result = interpreter.run(sizes=SIZES | {"causal": True}, poison_output=True)
    assert result["poisoned"], "the output did not come from torch.empty, so this test poisons nothing"
    assert_right(result)


@pytest.mark.parametrize("change, why", [("float64", "float64"), ("long indices", "int64"), ("a head less", "needs")])
def test_says_what_it_cannot_do(interpreter, change, why):
    raised = interpreter.run(sizes=SIZES, change=change)["raised"]
    assert "Unsupported" in raised and why in raised


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("more", [{}, {"window": 512}], ids=["", "window"])
def test_compiles_for_hopper(more):
    """The sizes of the catalogue's config: products by tensor cores, keys by copies that run ahead."""
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    from torch._subclasses import FakeTensorMode

    from kernels.config_files import load_config
    from kernels.operations.nsa import triton_nsa

    problem = load_config("nsa").workloads[0].problem.model_copy(update=more)
    with FakeTensorMode():
        import torch

        shapes = {"q": problem.heads, "k": problem.groups, "v": problem.groups}
        tensors = [
            torch.empty((1, problem.seq_len, heads, problem.head_dim), dtype=torch.bfloat16)
            for heads in shapes.values()
        ]
        slots = (1, problem.seq_len, problem.groups, problem.selected_blocks)
        options = {"block_size": problem.block_size, "causal": True, "scale": problem.scale, "window": problem.window}
        indices = torch.empty(slots, dtype=torch.int32)
        (found,) = compiled(triton_nsa, lambda: triton_nsa.triton_nsa(*tensors, indices, **options))
    assert "mma.sync" in found.asm["ptx"] and "cp.async" in found.asm["ptx"]


# --- in the child -----------------------------------------------------------------------------------------------------


def run_case(
    sizes, dtype="float16", distribution="normal", tile=None, layout="contiguous", poison_output=False, change=""
):
    """Runs the kernel once and judges it as the instrument does."""
    import torch

    from kernels.analysis.correctness import judge
    from kernels.child.reference import Reference, measure
    from kernels.operations.nsa import NativeSparseAttention, triton_nsa

    problem = NativeSparseAttention(dtype=dtype, **sizes)
    inputs = problem.inputs("cpu", round(sum(sizes.values())), distribution)
    poisoned = []
    with contextlib.ExitStack() as stack:
        if poison_output:
            stack.enter_context(replaced(torch, "empty", poisoning(torch.empty, poisoned)))
        if tile:
            stack.enter_context(replaced(triton_nsa, "tiles", lambda *_: triton_nsa.Tile(*tile)))
        laid = [laid_out(t, layout) for t in inputs.tensors[:3]]
        out = triton_nsa.triton_nsa(*changed([*laid, inputs.tensors[3]], change), **inputs.options)
    reference = Reference(problem, inputs, 0, True, distribution)
    return {"poisoned": len(poisoned)} | judge([measure(out, reference)], dtype)


def laid_out(x, layout):
    """The same numbers with other strides."""
    import torch

    match layout:
        case "heads first":
            return x.transpose(1, 2).contiguous().transpose(1, 2)
        case "followed by NaN":
            return torch.cat([x, torch.full_like(x, float("nan"))], -1)[..., : x.shape[-1]]
    return x


def changed(tensors, change):
    """Tensors that the kernel refuses."""
    q, k, v, indices = tensors
    match change:
        case "float64":
            return q.double(), k.double(), v.double(), indices
        case "long indices":
            return q, k, v, indices.long()
        case "a head less":
            return q[:, :, 1:], k, v, indices
    return tensors


if __name__ == "__main__":
    serve(run_case)
