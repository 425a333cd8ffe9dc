"""The judging rule for attention: kernels that are wrong as people's kernels are, and right ones that differ from PyTorch.

Wrong ones must be rejected and right ones accepted in each dtype, with and without a mask, at lengths around a tile's.
"""

import math
from functools import cache

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from small_operations import MeanSquare, mean_square  # noqa: E402

from kernels.analysis import correctness  # noqa: E402
from kernels.analysis.correctness import judge, why_not_judged, why_wrong  # noqa: E402
from kernels.child.bench import Bench  # noqa: E402
from kernels.child.reference import Reference, measure  # noqa: E402
from kernels.child.scalars import Scalars  # noqa: E402
from kernels.child.slope import Slopes  # noqa: E402
from kernels.dtypes import DTYPES  # noqa: E402
from kernels.operations import attention  # noqa: E402
from kernels.operations.attention import Attention  # noqa: E402
from kernels.operations.base import Piece  # noqa: E402

LENGTHS = (1, 63, 65, 127, 129)
TILE = 64
SEEDS = (1, 2)
LOG2_E = 1 / math.log(2)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The problems are small: threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def problem(dtype, seq_len, causal, **sizes):
    return Attention(dtype=dtype, seq_len=seq_len, causal=causal, **{"batch": 2, "heads": 4, "head_dim": 64} | sizes)


@cache
def reference(dtype, seq_len, causal, seed, kv_heads=2):
    asked = problem(dtype, seq_len, causal, kv_heads=kv_heads)
    return Reference(asked, asked.inputs("cpu", seed), seed, thorough=True)


def verdict(kernel, dtype, seq_len, causal, **sizes):
    """As the instrument comes to it, over two seeds."""
    references = [reference(dtype, seq_len, causal, seed, **sizes) for seed in SEEDS]
    return judge([measure(kernel(*r.inputs.tensors, **r.inputs.options), r) for r in references], dtype)


# --- kernels ----------------------------------------------------------------------------------------------------------


def each_head(q, k, v):
    """k and v with as many heads as q."""
    group = q.shape[1] // k.shape[1]
    return k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)


def weights(q, k, causal, scale, diagonal=1):
    scores = (q @ k.mT).float() * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(diagonal)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores.softmax(-1)


def eager(q, k, v, *, causal, scale):
    k, v = each_head(q, k, v)
    return weights(q, k, causal, scale).to(q.dtype) @ v


def sdpa(q, k, v, *, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)


def in_float32(q, k, v, **options):
    return eager(q.float(), k.float(), v.float(), **options).to(q.dtype)


def in_float64(q, k, v, **options):
    return sdpa(q.double(), k.double(), v.double(), **options).to(q.dtype)


def online(q, k, v, *, causal, scale, tile=32):
    """As flash attention: tiles of keys, softmax in base 2 kept online, with the fused multiply-add of a GPU."""
    k, v = each_head(q, k, v)
    length = q.shape[2]
    largest = torch.full((*q.shape[:3], 1), -math.inf)
    total, sums = torch.zeros_like(largest), torch.zeros(q.shape)
    factor = torch.tensor(scale * LOG2_E)
    for first in range(0, length, tile):
        keys, values = k[:, :, first : first + tile], v[:, :, first : first + tile]
        scores = q.float() @ keys.float().mT
        if causal:
            hidden = torch.arange(first, first + keys.shape[2]) > torch.arange(length)[:, None]
            scores = scores.masked_fill(hidden, -math.inf)
        before, largest = largest, torch.maximum(largest, scores.amax(-1, keepdim=True) * factor)
        part = torch.exp2((scores.double() * factor.double() - largest.double()).float())
        shrunk = torch.exp2(before - largest)
        total = total * shrunk + part.sum(-1, keepdim=True)
        sums = sums * shrunk + part.to(q.dtype).float() @ values.float()
        sums = torch.where(largest == -math.inf, 0.0, sums)
    return (sums * (1 / total)).to(q.dtype)


RIGHT = {
    "eager": eager,
    "sdpa": sdpa,
    "in float32": in_float32,
    "in float64": in_float64,
    "online softmax": online,
    "online softmax, one tile": lambda *args, **options: online(*args, **options, tile=256),
}


def mask_one_off(q, k, v, *, causal, scale):
    """Each query sees the key after its own, too."""
    k, v = each_head(q, k, v)
    return weights(q, k, causal, scale, diagonal=2).to(q.dtype) @ v


def last_key_dropped(q, k, v, *, causal, scale):
    k, v = each_head(q, k, v)
    seen = weights(q, k, causal, scale)
    seen[..., -1] = 0
    return (seen / seen.sum(-1, keepdim=True)).to(q.dtype) @ v


def padding_counted(q, k, v, *, causal, scale):
    """The last tile is filled up with keys of zero, which nobody masks."""
    missing = -k.shape[2] % TILE
    k, v = (F.pad(t, (0, 0, 0, missing)) for t in each_head(q, k, v))
    return weights(q, k, causal, scale).to(q.dtype) @ v


def every_other_row(value):
    def kernel(*args, **options):
        out = eager(*args, **options)
        out[:, :, ::2] = value
        return out

    return kernel


def one_element(value):
    def kernel(*args, **options):
        out = eager(*args, **options)
        out[-1, -1, -1, -1] = value
        return out

    return kernel


def heads_grouped_by_remainder(q, k, v, **options):
    """Query head h with key head h % Hkv, not h // group."""
    repeats = (1, q.shape[1] // k.shape[1], 1, 1)
    return eager(q, k.repeat(repeats), v.repeat(repeats), **options)


def of_coarser_inputs(q, k, v, **options):
    """8-bit inputs where 16 bits are asked, tf32 where float32 is."""
    if q.dtype == torch.float32:
        coarse = [((t.view(torch.int32) + 0x1000) >> 13 << 13).view(torch.float32) for t in (q, k, v)]
    else:
        coarse = [t.to(torch.float8_e4m3fn).to(t.dtype) for t in (q, k, v)]
    return eager(*coarse, **options)


def few_ulp_too_large(*args, **options):
    """4 ulp for 16 bits; 16 for float32, where PyTorch itself is 3 to 6 off."""
    out = eager(*args, **options)
    ulps = 16 if out.dtype == torch.float32 else 4
    return out * (1 + ulps * torch.finfo(out.dtype).eps)


def summed_in_float16(q, k, v, *, causal, scale):
    """Key after key, the running sum in float16: right enough for float16 at these lengths, not for float32."""
    k, v = each_head(q, k, v)
    seen = weights(q, k, causal, scale).half()
    sums = torch.zeros(q.shape, dtype=torch.float16)
    for key in range(k.shape[2]):
        sums += seen[..., key : key + 1] * v[:, :, key : key + 1].half()
    return sums.to(q.dtype)


class Lazy(torch.Tensor):
    """Could compute when it is read."""


WRONG = {
    "no scale": (lambda q, k, v, causal, scale: eager(q, k, v, causal=causal, scale=1.0), "largest error"),
    "last key dropped": (last_key_dropped, ""),
    "every other row not written": (every_other_row(math.nan), "elements are NaN or Inf"),
    "every other row zero": (every_other_row(0.0), "largest error"),
    "one NaN": (one_element(math.nan), "1 elements are NaN or Inf"),
    "one Inf": (one_element(math.inf), "1 elements are NaN or Inf"),
    "another head": (lambda *args, **options: eager(*args, **options).roll(1, 1), "largest error"),
    "another row": (lambda *args, **options: eager(*args, **options).roll(1, 2), "largest error"),
    "heads grouped by remainder": (heads_grouped_by_remainder, "largest error"),
    "inputs too coarse": (of_coarser_inputs, ""),
    "a few ulp too large": (few_ulp_too_large, "error"),
    "the mean of v": (lambda q, k, v, **_: each_head(q, k, v)[1].mean(2, keepdim=True).expand_as(q).clone(), ""),
    "zero": (lambda q, k, v, **_: torch.zeros_like(q), "largest error"),
    "another dtype": (lambda *args, **options: eager(*args, **options).double(), "returned torch.float64, not"),
    "another shape": (lambda *args, **options: eager(*args, **options).transpose(1, 2), "returned shape (2, "),
    "another kind": (lambda *args, **options: eager(*args, **options).as_subclass(Lazy), "Lazy, not a torch.Tensor"),
    "a sparse tensor": (
        lambda *args, **options: eager(*args, **options).to_sparse(),
        "of the layout sparse_coo, not a dense",
    ),
    "nothing": (lambda *_, **__: None, "returned a builtins.NoneType, not a torch.Tensor"),
}
NEED_LENGTH = [n for n in LENGTHS if n > 1]
"""At one key there is nothing to scale, to mask or to weigh."""


@pytest.mark.parametrize("causal", (False, True), ids=("full", "causal"))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_kernel_is_accepted(kernel, dtype, causal):
    for seq_len, kv_heads in zip(LENGTHS, (4, 2, 1, 4, 2), strict=True):
        found = verdict(kernel, dtype, seq_len, causal, kv_heads=kv_heads)
        assert found["correct"], (seq_len, kv_heads, found)


@pytest.mark.parametrize("causal", (False, True), ids=("full", "causal"))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel, reason", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_kernel_is_rejected(kernel, reason, dtype, causal):
    for seq_len in NEED_LENGTH:
        found = verdict(kernel, dtype, seq_len, causal)
        assert not found["correct"], (seq_len, found)
        assert reason in found["why"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_mask_that_is_one_off_is_rejected(dtype):
    for seq_len in NEED_LENGTH:
        assert not verdict(mask_one_off, dtype, seq_len, causal=True)["correct"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_of_padding_are_rejected(dtype):
    for seq_len in (65, 129):
        assert not verdict(padding_counted, dtype, seq_len, causal=False)["correct"]


def test_float32_may_not_be_summed_in_float16():
    for seq_len in NEED_LENGTH:
        assert not verdict(summed_in_float16, "float32", seq_len, causal=False)["correct"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_wrong_row_among_many_right_ones_is_rejected(dtype):
    """The last of 129 rows misses one key: in bfloat16 neither the largest error nor that of the whole shows it."""
    found = verdict(last_key_dropped, dtype, 129, causal=True)
    assert not found["correct"]
    if dtype == "bfloat16":
        assert "relative error of a row" in found["why"]


def test_rows_too_short_to_be_judged_alone_are_judged_together():
    asked = problem("float16", 65, False, head_dim=8)
    reading = measure(sdpa(*(r := asked.inputs("cpu", 1)).tensors, **r.options), Reference(asked, r, 1, True))
    assert (reading["row"], reading["yard_row"]) == (0, 0)
    assert judge([reading], "float16")["correct"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_half_the_allowance_of_honest_kernels_is_left(dtype):
    """So that a verdict does not hang on a seed: PyTorch's own kernels are far from the bound, on this machine too."""
    for seq_len in NEED_LENGTH:
        for seed in SEEDS:
            r = reference(dtype, seq_len, True, seed)
            reading = measure(sdpa(*r.inputs.tensors, **r.inputs.options), r)
            assert reading["frobenius"] < 0.7 * min(
                DTYPES[dtype].factor * reading["yard_frobenius"], DTYPES[dtype].frobenius_cap
            )
            assert reading["row"] < 0.7 * correctness.ROW_FACTOR * reading["yard_row"]


# --- large problems are sampled ---------------------------------------------------------------------------------------


@pytest.fixture
def sampled(monkeypatch):
    """As if 65 keys were too many for float64: 2 heads of 8 and 16 rows of 65 are checked."""
    monkeypatch.setattr(attention, "FLOAT64_SCORES", 1)
    monkeypatch.setattr(attention, "SAMPLED_HEADS", 2)
    monkeypatch.setattr(attention, "SAMPLED_ROWS", 16)


def sampled_reading(kernel, dtype, causal, thorough):
    asked = problem(dtype, 65, causal, kv_heads=2)
    inputs = asked.inputs("cpu", 3)
    return measure(kernel(*inputs.tensors, **inputs.options), Reference(asked, inputs, 3, thorough))


@pytest.mark.parametrize("causal", (False, True), ids=("full", "causal"))
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sample_accepts_what_is_right_and_rejects_what_is_wrong_everywhere(sampled, dtype, causal):
    for thorough in (False, True):
        for kernel in (eager, sdpa, in_float32, online):
            assert judge([sampled_reading(kernel, dtype, causal, thorough)], dtype)["correct"]
        for name in ("no scale", "every other row not written", "another head", "a few ulp too large"):
            assert not judge([sampled_reading(WRONG[name][0], dtype, causal, thorough)], dtype)["correct"], name


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_thorough_check_covers_what_the_sample_does_not(sampled, dtype):
    asked = problem(dtype, 65, True, kv_heads=2)
    pieces = Reference(asked, asked.inputs("cpu", 3), 3, thorough=False).pieces()
    checked = {
        pair
        for b, h, *_ in (piece.index for piece in pieces)
        for pair in zip(b.flatten().tolist(), h.flatten().tolist(), strict=True)
    }
    assert len(checked) == 2
    missed = next((b, h) for b in range(2) for h in range(4) if (b, h) not in checked)

    def wrong_in_one_head(*args, **options):
        out = eager(*args, **options)
        out[missed] += 0.5
        return out

    assert judge([sampled_reading(wrong_in_one_head, dtype, True, thorough=False)], dtype)["correct"]
    assert not judge([sampled_reading(wrong_in_one_head, dtype, True, thorough=True)], dtype)["correct"]


def test_a_reference_too_large_to_keep_is_made_again_and_is_the_same(sampled, monkeypatch):
    kept = sampled_reading(sdpa, "float16", True, thorough=True)
    monkeypatch.setattr(Reference, "KEEP_BYTES", 0)
    asked = problem("float16", 65, True, kv_heads=2)
    inputs = asked.inputs("cpu", 3)
    again = Reference(asked, inputs, 3, thorough=True)
    out = sdpa(*inputs.tensors, **inputs.options)
    assert measure(out, again) == measure(out, again) == kept
    assert again._kept is None


@pytest.mark.parametrize("thorough", (False, True))
def test_a_reference_is_computed_once_for_all_kernels_where_it_can_be_kept(sampled, monkeypatch, thorough):
    """A sample of a large output is small. So is a whole one beside a GPU's memory."""
    asked = problem("float16", 65, True, kv_heads=2)
    inputs, times = asked.inputs("cpu", 3), []
    check = Attention.check
    monkeypatch.setattr(Attention, "check", lambda *of: (times.append(1), check(*of))[1])
    one = Reference(asked, inputs, 3, thorough)
    for kernel in (sdpa, eager):
        measure(kernel(*inputs.tensors, **inputs.options), one)
    assert len(times) == 1
    monkeypatch.setattr(Reference, "KEEP_BYTES", sum(piece.nbytes for piece in one.pieces()) - 1)
    measure(sdpa(*inputs.tensors, **inputs.options), one := Reference(asked, inputs, 3, thorough))
    assert one._kept is None, "all of it, or nothing"


@pytest.mark.parametrize(("together", "compared"), [(1, 1), (1, 3), (3, 4), (2**20, 2**20)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_head_is_the_same_whichever_are_computed_together(sampled, monkeypatch, dtype, together, compared):
    asked = problem(dtype, 65, True, kv_heads=2)
    inputs = asked.inputs("cpu", 3)
    right = eager(*(tensor.double() for tensor in inputs.tensors), **inputs.options)
    monkeypatch.setattr(attention, "TOGETHER_SCORES", together * 65 * 65)
    monkeypatch.setattr(attention, "TOGETHER_VALUES", compared * asked.seq_len * asked.head_dim)
    covered = torch.zeros(right.shape)
    for piece in asked._every_head(inputs):
        torch.testing.assert_close(piece.reference.double(), right[piece.index], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(piece.yardstick.double(), right[piece.index], rtol=0.05, atol=0.02)
        assert piece.reference.shape[0] <= max(together, compared)
        covered[piece.index] += 1
    assert bool((covered == 1).all())


# --- what the judge makes of readings ---------------------------------------------------------------------------------


def good_reading(**more):
    r = reference("float16", 63, False, 1)
    return measure(eager(*r.inputs.tensors, **r.inputs.options), r) | more


def test_every_seed_counts_and_the_worst_is_shown():
    worse = good_reading(frobenius=0.5, max_abs=0.9)
    found = judge([good_reading(), worse, good_reading()], "float16")
    assert (found["correct"], found["seeds"], found["frobenius"]) == (False, 3, 0.5)
    assert "largest error 0.9" in found["why"]
    assert judge([good_reading()] * 3, "float16")["why"] == ""


def test_that_an_output_came_late_is_said_before_the_errors_that_it_explains():
    """On a busy host the first looks may find it complete."""
    wrong, late = good_reading(max_abs=0.6, frobenius=0.6), good_reading(late=True)
    found = judge([good_reading(), wrong, late], "float16")
    assert found["why"] == "the output changed after the call returned"
    assert "largest error" in judge([good_reading(), wrong], "float16")["why"]


def test_an_output_that_is_one_constant_is_wrong_only_where_the_right_one_is_not():
    assert judge([good_reading(constant=True)], "float16")["why"] == "every element of the output is the same"
    one = problem("float16", 1, False, batch=1, heads=1, head_dim=1)
    inputs = one.inputs("cpu", 1)
    reading = measure(eager(*inputs.tensors, **inputs.options), Reference(one, inputs, 1, True))
    assert judge([reading], "float16")["correct"]


def test_a_reference_in_the_outputs_own_dtype_is_left_as_it_is():
    asked = Attention(batch=1, heads=1, seq_len=32, head_dim=32, dtype="float32")
    inputs = asked.inputs("cpu", 1)
    reference = Reference(asked, inputs, 1, thorough=True)
    right = next(iter(reference.pieces())).reference.float()
    reference._kept = [Piece(..., right, right.clone())]
    first, again = measure(right + 1e-3, reference), measure(right + 1e-3, reference)
    assert first == again
    assert first["largest"] == pytest.approx(float(right.abs().max()))


def test_the_cap_holds_even_where_the_yardstick_is_worse():
    for dtype, cap in ((name, row.frobenius_cap) for name, row in DTYPES.items()):
        loose = good_reading(yard_frobenius=1.0, yard_abs=10.0, yard_row=1.0)
        assert judge([loose | {"frobenius": 0.9 * cap}], dtype)["correct"]
        assert not judge([loose | {"frobenius": 1.1 * cap}], dtype)["correct"]


@pytest.mark.parametrize("inputs", ["normal", "x30"])
@pytest.mark.parametrize("dtype, factor", [("float16", 2), ("bfloat16", 2), ("float32", 4)])
def test_how_much_worse_than_the_yardstick_a_kernel_may_be(dtype, factor, inputs):
    more = 8 if (dtype, inputs) == ("float32", "x30") else 1
    factor *= more
    same = {
        "distribution": inputs,
        "rounding": 0.0,
        "yard_abs": 1e-4,
        "yard_frobenius": 1e-7,
        "yard_row": 1e-5,
        "largest": 0.0,
    }
    slack = 2**-23 if dtype == "float32" else 0

    def accepted(**errors):
        return judge([good_reading(**same | {"max_abs": 0.0, "frobenius": 0.0, "row": 0.0} | errors)], dtype)["correct"]

    for name, most in (
        ("max_abs", factor * 1e-4),
        ("frobenius", factor * 1e-7 + slack),
        ("row", 4 * more * (1e-5 + slack)),
    ):
        assert accepted(**{name: 0.99 * most}), name
        assert not accepted(**{name: 1.01 * most}), name


def test_with_one_key_the_last_bit_of_float32_may_be_wrong_and_no_more():
    """There the yardstick has no error at all; products of three tf32 parts, which count as float32, have this one."""

    def off_by(ulps):
        def kernel(q, k, v, **_):
            return each_head(q, k, v)[1] * (1 + ulps * 2**-23)

        return verdict(kernel, "float32", 1, causal=False)["correct"]

    assert off_by(0)
    assert off_by(1)
    assert not off_by(4)


# --- systematic errors ------------------------------------------------------------------------------------------------


def slopes_of(error, right):
    found, scalars = Slopes(), Scalars()
    found.add(error, torch.zeros_like(right), right, right.norm(dim=-1, dtype=torch.float64), scalars)
    scalars.read()
    return found.reading(rows_alone=True)


def test_errors_of_either_sign_have_no_slope_and_one_factor_has():
    """The mean of 400 draws is 0 within 5 of its standard errors, no draw is 5 away, and 0.1% too much is 0.1%."""
    torch.manual_seed(3)
    far, slopes = [], []
    for _ in range(400):
        right = torch.randn(64, 48, dtype=torch.float64)
        found = slopes_of(1e-3 * torch.randn_like(right), right)
        far.append(abs(found["slope"]) / found["slope_error"])
        slopes.append(found["slope"])
    assert max(far) < 5
    assert sum(one > 2 for one in far) / len(far) == pytest.approx(0.05, abs=0.04)
    spread = torch.tensor(slopes).std() / len(slopes) ** 0.5
    assert abs(sum(slopes) / len(slopes)) < 5 * spread
    assert slopes_of(1e-3 * right, right)["slope"] == pytest.approx(1e-3)


def test_errors_that_rows_share_count_once():
    """Where all rows are alike, so are their roundings: 64 rows say no more than one."""
    torch.manual_seed(3)
    right = torch.randn(1, 48, dtype=torch.float64).expand(64, 48)
    found = slopes_of(1e-3 * torch.randn(1, 48, dtype=torch.float64).expand(64, 48), right)
    assert abs(found["slope"]) < 5 * found["slope_error"]


def test_correct_rows_of_zeros_have_a_slope_of_zero_in_float32_too():
    """A weight of 1e300 is none in float32."""
    rows = torch.zeros(32, 64)
    assert slopes_of(rows, rows)["slope"] == 0.0


def test_short_rows_and_few_rows_have_no_slope():
    for shape in ((64, 8), (8, 64), (64,)):
        right = torch.ones(shape, dtype=torch.float64)
        assert slopes_of(right, right) == {}


@pytest.mark.parametrize("slope", [6e-4, -6e-4])
def test_one_factor_over_all_is_wrong_though_it_is_smaller_than_rounding(slope):
    known = {"slope": slope, "slope_error": 1e-5, "yard_slope": 0.0, "yard_slope_error": 3e-5, "slope_allowed": 4e-4}
    said = judge([good_reading(**known)], "float16")["why"]
    assert said == f"the output is 0.06% too {'large' if slope > 0 else 'small'} on average, allowed 0.045%"
    for more in ({"slope": 4e-4}, {"slope_error": 5e-5}, {"yard_slope": 3e-4}):
        assert judge([good_reading(**known | more)], "float16")["correct"]


def test_rows_may_not_each_have_a_factor_of_their_own():
    known = {"slope": 0.0, "slope_error": 1e-5, "yard_slope": 0.0, "yard_slope_error": 1e-5, "slope_allowed": 0.0}
    rms = {"slope_rms": 5e-5, "yard_slope_rms": 1e-5}
    assert "rows are 0.005% too large or too small" in judge([good_reading(**known | rms)], "float16")["why"]
    assert judge([good_reading(**known | rms | {"yard_slope_rms": 3e-5})], "float16")["correct"]


def test_a_part_is_judged_on_its_own_but_not_where_chance_decides_it():
    alone = {"alone": {"the first row": [0.0, 0.0], "the last row": [0.03, 2e-4]}}
    assert judge([good_reading(**alone)], "float16")["why"] == "the last row: relative error 0.03, allowed 0.000888"
    assert judge([good_reading(**alone, distribution="x30", dominated=True)], "float16")["correct"]


@pytest.mark.parametrize("causal", (False, True))
def test_attention_names_its_first_and_its_last_row(causal):
    r = reference("float16", 65, causal, 1)
    reading = measure(eager(*r.inputs.tensors, **r.inputs.options), r)
    assert set(reading.get("alone", {})) == ({"the first row", "the last row"} if causal else set())


def test_inputs_on_which_eager_pytorch_is_inexact_are_judged_by_a_multiple_of_its_error():
    known = {"distribution": "x30", "yard_frobenius": 1e-6, "max_abs": 0.0, "row": 0.0}
    assert judge([good_reading(**known, frobenius=3e-5)], "float32")["correct"]
    assert "relative Frobenius error 0.0001" in judge([good_reading(**known, frobenius=1e-4)], "float32")["why"]


def test_the_yardstick_of_a_single_number_is_that_of_many_seeds():
    problem = MeanSquare(dtype="float32")
    readings = []
    for seed in range(20):
        inputs = problem.inputs("cpu", seed)
        readings.append(measure(mean_square(*inputs.tensors), Reference(problem, inputs, seed, True)))
    assert {reading["pooled"] for reading in readings} == {8}
    assert min(reading["yard_abs"] for reading in readings) > 0
    assert all(judge([reading], "float32")["correct"] for reading in readings)


def test_a_nan_that_a_device_leaves_out_of_the_ends_does_not_pass_either(monkeypatch):
    """Whether all values are finite is read from the smallest and the largest."""
    asked = problem("float32", 64, False)
    inputs = asked.inputs("cpu", 1)
    out = sdpa(*inputs.tensors, **inputs.options)
    out.view(-1)[5] = math.nan
    monkeypatch.setattr("kernels.child.errors._ends", lambda *tensors: [(-1.0, 1.0)] * len(tensors))
    reading = measure(out, Reference(asked, inputs, 1, True))
    assert reading["max_abs"] == math.inf and judge([reading], "float32")["correct"] is False


def test_a_nan_among_the_numbers_never_passes():
    for name in ("max_abs", "frobenius", "row"):
        assert not judge([good_reading(**{name: math.nan})], "float16")["correct"], name


def test_changed_inputs_are_wrong_though_the_output_is_right():
    found = judge([good_reading()], "float16", {"inputs_changed": True})
    assert (found["correct"], found["why"], found["inputs_changed"]) == (False, "the kernel changed its inputs", True)


# --- through the bench ------------------------------------------------------------------------------------------------

KERNEL = """
import torch
import torch.nn.functional as F
from kernels.catalog import kernel

def right(q, k, v, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)

@kernel("attention", backend="pytorch")
def planted(q, k, v, *, causal, scale):
"""
SIZES = {"batch": 1, "heads": 2, "seq_len": 127, "head_dim": 64, "causal": True}


@pytest.fixture
def bench_verdict(tmp_path, monkeypatch):
    """The verdict on a kernel with this body, as the measuring process and its parent come to it."""
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))

    def check(body, dtype="float32"):
        (tmp_path / "attention").mkdir(exist_ok=True)
        (tmp_path / "attention" / "planted.py").write_text(KERNEL + "\n".join(f"    {line}" for line in body))
        bench = Bench("cpu")
        bench.open({"operation": "attention", "dtype": dtype, "sizes": SIZES})
        bench.load("planted")
        bench.compile("planted", seed=5)
        got = bench.verify("planted", seed=6, thorough=True)
        return judge([got.reading], dtype, {name: getattr(got, name) for name in ("inputs_changed", "deterministic")})

    return check


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bench_accepts_a_right_kernel(bench_verdict, dtype):
    found = bench_verdict(["return right(q, k, v, causal, scale)"], dtype)
    assert (found["correct"], found["deterministic"], found["inputs_changed"]) == (True, True, False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_kernel_that_works_in_its_inputs_is_rejected(bench_verdict, dtype):
    body = ["out = right(q, k, v, causal, scale)", "k.mul_(2)", "return out"]
    assert bench_verdict(body, dtype)["why"] == "the kernel changed its inputs"


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_output_that_is_half_written_is_rejected(bench_verdict, dtype):
    """Whatever the memory that it gets held before, a right answer perhaps, must not pass for its work."""
    body = [
        "out = torch.empty_like(q)",
        "out[:, :, :64] = right(q, k, v, causal, scale)[:, :, :64]",
        "return out",
    ]
    assert not bench_verdict(body, dtype)["correct"]


def test_small_memory_that_holds_another_kernels_answer_does_not_pass_for_work(bench_verdict):
    """The allocator may hand out the place of an output that was right and has been freed."""
    even = "q.shape[2] // 2 * 2"
    bench_verdict(
        [
            "out = torch.empty_like(q)",
            f"out[:, :, :{even}] = right(q, k, v, causal, scale)[:, :, :{even}]",
            "return out",
        ]
    )
    bench, passed = Bench("cpu"), []
    for seed in range(10):
        for seq_len in (1, 63, 127, 129):
            sizes = {"batch": 2, "heads": 2, "seq_len": seq_len, "head_dim": 16}
            bench.open({"operation": "attention", "dtype": "float32", "sizes": sizes})
            for honest in ("sdpa", "eager"):
                bench.verify(honest, seed, thorough=True)
            reading = bench.verify("planted", seed, thorough=True).reading
            passed += [seq_len] * judge([reading], "float32")["correct"]
    assert not passed


def test_an_output_that_is_not_written_at_all_is_rejected(bench_verdict):
    assert not bench_verdict(["return torch.empty_like(q)"])["correct"]


def test_a_kernel_that_answers_by_chance_is_not_deterministic(bench_verdict):
    found = bench_verdict(["return right(q, k, v, causal, scale) * (1 + 0.1 * torch.rand(1))"])
    assert found["deterministic"] is False


def test_kernels_of_two_operations_with_one_name_are_two_kernels():
    bench = Bench("cpu")
    bench.open({"operation": "attention", "dtype": "float32", "sizes": SIZES})
    first = bench.load("eager")
    bench.open({"operation": "gemm", "dtype": "float32", "sizes": {"m": 4, "n": 4, "k": 4}})
    assert bench.load("eager").sha256 != first.sha256


def test_nan_is_excused_only_where_eager_pytorch_gives_nan_on_unusual_inputs():
    """Raw fp16 scores of inputs 30 times as large overflow at head dim 128 and more, in eager PyTorch itself."""
    reading = {"nonfinite": 3, "fits": True, "yard_frobenius": float("nan"), "distribution": "x30"}
    assert why_wrong(reading, "float16") == ""
    assert why_not_judged(reading, "float16") == "eager PyTorch itself gives NaN here"
    for changed in ({"distribution": "normal"}, {"yard_frobenius": 1e-3}):
        assert why_wrong(reading | changed, "float16").startswith("3 elements are NaN or Inf")
