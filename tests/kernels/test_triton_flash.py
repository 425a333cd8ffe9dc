"""The Triton flash attention computes attention: shown on a CPU, in the interpreter, at the lengths that break tiles.

The judge is the instrument's rule: float64 is the truth, and the kernel may err twice as much as eager PyTorch in the
same dtype does.
"""

import contextlib

import pytest
from interpreter import WHOLE_GRIDS, interpreting, poisoning, replaced, serve
from selection import telling

LENGTHS = (1, 63, 64, 65, 127, 128, 129, 200)
FROBENIUS_CAP = {"float16": 2e-3, "bfloat16": 1e-2}


@pytest.fixture(scope="module")
def interpreter():
    yield from interpreting(__file__)


def assert_right(result):
    assert "raised" not in result, result["raised"]
    assert result["finite"], "the output has NaN or Inf"
    assert result["max_error"] <= 2 * result["yardstick_max_error"] + 2 * result["rounding"]
    assert result["frobenius"] <= 2 * result["yardstick_frobenius"]
    assert result["frobenius"] <= FROBENIUS_CAP[result["dtype"]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", telling([64, 128], 64, why=WHOLE_GRIDS))
@pytest.mark.parametrize("seq_len", telling(LENGTHS, 1, 65, 129, why=WHOLE_GRIDS))
def test_is_right_at_edge_lengths(interpreter, seq_len, head_dim, causal, dtype):
    assert_right(interpreter.run(seq_len=seq_len, head_dim=head_dim, causal=causal, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("kv_heads", telling([1, 2], 2, why=WHOLE_GRIDS))
def test_query_heads_share_key_value_heads(interpreter, kv_heads, causal, dtype):
    assert_right(interpreter.run(batch=2, heads=4, kv_heads=kv_heads, seq_len=65, causal=causal, dtype=dtype))


@pytest.mark.parametrize("layout", ["transposed", "every other", "last dim strided", "expanded"])
@pytest.mark.parametrize("causal", telling([False, True], True, why=WHOLE_GRIDS), ids=["full", "causal"])
def test_takes_any_strides(interpreter, causal, layout):
    assert_right(interpreter.run(batch=2, heads=2, seq_len=65, causal=causal, layout=layout))


@pytest.mark.parametrize("mask", ["split", "branch", "always"])
@pytest.mark.parametrize("tma", [False, True], ids=["pointers", "tma"])
@pytest.mark.parametrize(
    "block", telling([(64, 64), (128, 64), (64, 128), (128, 32)], (128, 64), why=WHOLE_GRIDS), ids=str
)
@pytest.mark.parametrize("causal", telling([False, True], True, why=WHOLE_GRIDS), ids=["full", "causal"])
def test_every_tile_is_right(interpreter, causal, block, tma, mask):
    assert_right(interpreter.run(heads=1, seq_len=200, causal=causal, tile=[*block, 4, 2, mask, tma]))


@pytest.mark.parametrize("heads_in_l2", telling([0, 1, 2, 3, 5, 100], 0, 2, why=WHOLE_GRIDS))
def test_causal_waves_leave_no_head_and_no_tile_out(interpreter, heads_in_l2):
    assert_right(interpreter.run(batch=2, heads=6, kv_heads=3, seq_len=129, causal=True, heads_in_l2=heads_in_l2))


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("seq_len", telling([1, 65, 200], 65, why=WHOLE_GRIDS))
def test_nothing_of_a_poisoned_output_is_left(interpreter, seq_len, causal):
    result = interpreter.run(seq_len=seq_len, causal=causal, poison_output=True)
    assert result["poisoned"] == 1, "the output did not come from torch.empty, so this test poisons nothing"
    assert_right(result)


@pytest.mark.parametrize("mask", ["split", "branch", "always"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_reads_nothing_past_the_end_of_a_sequence(interpreter, causal, mask):
    """What lies there is NaN, and even a weight of 0 would carry it into the output."""
    assert_right(interpreter.run(seq_len=65, causal=causal, layout="followed by NaN", tile=[64, 64, 4, 2, mask]))


def test_large_scores_do_not_overflow(interpreter):
    assert_right(interpreter.run(seq_len=129, causal=True, magnitude=30.0))


@pytest.mark.parametrize(
    "change, reason",
    [({"head_dim": 80}, "head_dim is 80"), ({"scale": -1.0}, "scale is -1.0"), ({"dtype": "float32"}, "dtypes are")],
)
def test_says_what_it_cannot_do(interpreter, change, reason):
    raised = interpreter.run(**{"seq_len": 64} | change)["raised"]
    assert "Unsupported" in raised and reason in raised


# --- in the child -----------------------------------------------------------------------------------------------------


def run_case(
    seq_len,
    batch=1,
    heads=2,
    kv_heads=None,
    head_dim=64,
    causal=False,
    dtype="float16",
    layout="contiguous",
    magnitude=1.0,
    scale=None,
    tile=None,
    heads_in_l2=None,
    poison_output=False,
):
    """Runs the kernel once and compares it, as measurement by the rule needs."""
    import torch

    from kernels.operations.attention import triton_flash as module

    torch.manual_seed(seq_len)
    q, k, v = (
        laid_out(magnitude * torch.randn(batch, h, seq_len, head_dim, dtype=getattr(torch, dtype)), layout)
        for h in (heads, kv_heads or heads, kv_heads or heads)
    )
    scale = scale or head_dim**-0.5
    poisoned = []
    with contextlib.ExitStack() as stack:
        if poison_output:
            stack.enter_context(replaced(torch, "empty", poisoning(torch.empty, poisoned)))
        if heads_in_l2 is not None:
            share = heads_in_l2 * 2 * seq_len * head_dim * v.element_size() * v.shape[1] // heads
            stack.enter_context(replaced(module, "L2_SHARE", share))
        if tile:
            out = module.launch(q, k, v, causal, scale, module.Tile(*tile))
        else:
            out = module.triton_flash(q, k, v, causal=causal, scale=scale)
    assert type(out) is torch.Tensor and out.shape == q.shape and out.dtype == q.dtype
    return {"dtype": dtype, "poisoned": len(poisoned)} | compared(out, q, k, v, causal, scale)


def laid_out(x, layout):
    """The same numbers with other strides."""
    import torch

    match layout:
        case "contiguous":
            return x
        case "transposed":  # (B, S, H, D) in memory, as projections leave it
            return x.transpose(1, 2).contiguous().transpose(1, 2)
        case "every other":
            return x.repeat_interleave(2, 2)[:, :, ::2]
        case "last dim strided":
            return x.mT.contiguous().mT
        case "expanded":
            return x[:1].expand(x.shape)
        case "followed by NaN":
            return torch.cat([x, torch.full_like(x, float("nan"))], 2)[:, :, : x.shape[2]]
    raise ValueError(layout)


def compared(out, q, k, v, causal, scale):
    """Errors of the output and of eager PyTorch in the same dtype, against float64."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    reference = probabilities(q.double() @ k.double().mT, causal, scale) @ v.double()
    yardstick = probabilities((q @ k.mT).float(), causal, scale).to(q.dtype) @ v
    rounded = reference.to(q.dtype)
    return {
        "finite": bool(out.isfinite().all()),
        "max_error": (out - reference).abs().max().item(),
        "yardstick_max_error": (yardstick - reference).abs().max().item(),
        "rounding": ((rounded + 0.3 - 0.3) - rounded).abs().max().item(),
        "frobenius": ((out - reference).norm() / reference.norm()).item(),
        "yardstick_frobenius": ((yardstick - reference).norm() / reference.norm()).item(),
    }


def probabilities(scores, causal, scale):
    import torch

    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return (scores * scale).softmax(-1)


if __name__ == "__main__":
    serve(run_case)
