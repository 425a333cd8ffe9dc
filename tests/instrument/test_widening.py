"""References that name their dtypes are judged by their exact answer: without their casts, in a wider dtype."""

import math
from types import SimpleNamespace

import pytest
import torch

from kernels.child import widening
from kernels.child.widening import Inexact, Way, Widening, way_of
from kernels.inprocess.adhoc import Unfit
from kernels.inprocess.pairs import Pair
from kernels.inprocess.trials import Wrong, _problem, judged

HALVES = pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
ROWS, DIM = 96, 64
torch.manual_seed(3)
WEIGHT = torch.randn(DIM, DIM) / 8


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def drawn(half, count=3, shape=(ROWS, DIM)):
    def give(seed):
        torch.manual_seed(seed)
        return [torch.randn(shape).to(half) for _ in range(count)]

    return give


def why_wrong(reference, kernel, give):
    """What is said of a kernel; empty: it is right."""
    pair = Pair("mine", kernel, reference, reference, give)
    try:
        judged(_problem(pair, "cpu"), kernel, "cpu", 12)
    except Wrong as error:
        return str(error)
    return ""


# --- right and wrong kernels ------------------------------------------------------------------------------------------


def attention(half):
    """As flashinfer's definitions are written: float32 within, new outputs of named dtypes, lse in float32."""

    def run(q, k, v):
        assert q.dtype == half
        output, lse = torch.zeros(q.shape, dtype=half), torch.full((len(q),), -math.inf, dtype=torch.float32)
        keys, values = k.to(torch.float32), v.to(torch.float32)
        for row in range(len(q)):
            logits = torch.matmul(q[row].to(torch.float32), keys[: row + 1].T) / math.sqrt(DIM)
            lse[row] = torch.logsumexp(logits, dim=-1) / math.log(2.0)
            output[row] = torch.matmul(torch.softmax(logits, dim=-1), values[: row + 1]).to(half)
        return output, lse

    return run


def scores(q, k, scale=DIM**-0.5, masked=True):
    found = q.float() @ k.float().T * scale
    return found.masked_fill(torch.ones_like(found, dtype=torch.bool).triu(1), -math.inf) if masked else found


def result(found, p, v, half):
    return (p @ v.float()).to(half), found.logsumexp(-1) / math.log(2)


def at_once(q, k, v):
    found = scores(q, k)
    return result(found, found.softmax(-1), v, q.dtype)


def with_rounded_p(q, k, v):
    found = scores(q, k)
    p = (found - found.amax(-1, keepdim=True)).exp()
    out = p.to(q.dtype).float() @ v.float() / p.sum(-1, keepdim=True)
    return out.to(q.dtype), found.logsumexp(-1) / math.log(2)


def in_blocks(q, k, v):
    """Online softmax, from the last keys to the first."""
    found, size = scores(q, k), 32
    most, total, out = torch.full((ROWS, 1), -1e30), torch.zeros(ROWS, 1), torch.zeros(ROWS, DIM)
    for begin in reversed(range(0, ROWS, size)):
        part = found[:, begin : begin + size]
        new = torch.maximum(most, part.amax(-1, keepdim=True).clamp_min(-1e30))
        p, old = (part - new).exp(), (most - new).exp()
        total, out, most = total * old + p.sum(-1, keepdim=True), out * old + p @ v[begin : begin + size].float(), new
    return (out / total).to(q.dtype), (most + total.log())[:, 0] / math.log(2)


def scale_is_off(q, k, v):
    found = scores(q, k, scale=1.02 * DIM**-0.5)
    return result(found, found.softmax(-1), v, q.dtype)


def without_mask(q, k, v):
    found = scores(q, k, masked=False)
    return result(found, found.softmax(-1), v, q.dtype)


def without_a_row(q, k, v):
    out, lse = at_once(q, k, v)
    out[-1] = 0
    return out, lse


def of_natural_logarithms(q, k, v):
    out, lse = at_once(q, k, v)
    return out, lse * math.log(2)


@HALVES
@pytest.mark.parametrize(
    ("kernel", "right"),
    [(at_once, True), (with_rounded_p, True), (in_blocks, True), (scale_is_off, False), (without_mask, False),
     (without_a_row, False), (of_natural_logarithms, False)],
)  # fmt: skip
def test_attention_that_computes_in_float32_is_judged(half, kernel, right):
    assert (not why_wrong(attention(half), kernel, drawn(half))) == right


def product(x, w):
    return (x.float() @ w.float().T).to(x.dtype)


def of_halves(x, w):
    """Sums of 64 terms in float32, added in that order."""
    parts = [x[:, n : n + 64].float() @ w[:, n : n + 64].float().T for n in range(0, x.shape[1], 64)]
    return sum(parts).to(x.dtype)


def with_rounded_sums(x, w):
    total = torch.zeros(len(x), len(w), dtype=x.dtype)
    for n in range(0, x.shape[1], 16):
        total += (x[:, n : n + 16].float() @ w[:, n : n + 16].float().T).to(x.dtype)
    return total


@HALVES
@pytest.mark.parametrize(
    ("kernel", "right"),
    [(torch.nn.functional.linear, True), (of_halves, True), (lambda x, w: (x.double() @ w.double().T).to(x.dtype), True),
     (with_rounded_sums, False), (lambda x, w: product(x, w) * 1.01, False)],
)  # fmt: skip
def test_products_that_end_with_a_cast_are_judged(half, kernel, right):
    assert (not why_wrong(product, kernel, drawn(half, 2, (64, 2048)))) == right


def test_a_reference_that_computes_in_float32_does_not_judge_float32_by_itself():
    """With float64 inputs it gave its own float32 answer as the truth: sums in another order were called wrong."""

    def reference(x, w):
        return (x.float() @ w.float().T).to(x.dtype)

    assert not why_wrong(reference, of_halves, drawn(torch.float32, 2, (64, 2048)))
    assert why_wrong(reference, lambda x, w: reference(x, w) * (1 + 1e-4), drawn(torch.float32, 2, (64, 2048)))


# --- what is exact ----------------------------------------------------------------------------------------------------


def error_of(reference, *tensors):
    """(how it is called; the relative error of each output as it is written)."""

    def outputs_of(out):
        return list(out) if isinstance(out, tuple | list) else [out]

    plain = outputs_of(reference(*(one.clone() for one in tensors)))
    way = way_of(reference, tensors, plain, outputs_of)
    exact = outputs_of(way.outputs(reference, tensors))
    assert all(one.dtype == way.dtype for one in exact if one.is_floating_point())
    return way, [
        float((one.double() - right).norm() / right.double().norm()) for one, right in zip(plain, exact, strict=True)
    ]


def rotated(x):
    pairs = torch.view_as_complex(x.float().reshape(ROWS, -1, 2))
    turns = torch.polar(torch.ones(DIM // 2), torch.arange(DIM // 2, dtype=torch.float32))
    return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)


def masked(x):
    hidden = torch.triu(torch.full((ROWS, ROWS), torch.finfo(x.dtype).min, dtype=x.dtype), 1)
    return torch.softmax(x @ x.T / 8 + hidden, -1, dtype=torch.float32).to(x.dtype) @ x


LSTM = torch.nn.LSTM(DIM, 32)
MHA = torch.nn.MultiheadAttention(DIM, 4)
HEAD = torch.nn.Linear(DIM, DIM)
WRITTEN = {
    "to": lambda x: (x.to(torch.float32) @ WEIGHT).to(torch.bfloat16),
    "half": lambda x: (x.float() @ WEIGHT).half(),
    "its dtype": lambda x: (x.float() @ WEIGHT).to(x.dtype),
    "type_as": lambda x: (x.float() @ WEIGHT).type_as(x),
    "rounds in the middle": lambda x: (x.float().softmax(-1).to(x.dtype) @ x.T.half().to(x.dtype)).to(x.dtype),
    "a new tensor": lambda x: x.new_zeros(x.shape, dtype=torch.bfloat16).copy_(x.float() * 0.3),
    "out": lambda x: torch.mul(x.float(), 0.3, out=torch.empty(x.shape, dtype=torch.float32)).bfloat16(),
    "a constant": lambda x: x * torch.tensor(0.3, dtype=x.dtype),
    "a number": lambda x: (x.float() / float(x.square().mean().half())).half(),
    "complex": rotated,
    "a mask": masked,
    "weights of a module": lambda x: LSTM(HEAD(x.float())[None])[0].bfloat16(),
    "attention of a module": lambda x: MHA(x.float(), x.float(), x.float())[0].bfloat16(),
}


@HALVES
@pytest.mark.parametrize("reference", WRITTEN.values(), ids=WRITTEN)
def test_the_exact_answer_has_no_cast(half, reference):
    way, (error,) = error_of(reference, *drawn(half, 1)(5))
    assert way.dtype == torch.float64 and 0 < error < 1e-2


def test_a_copy_that_is_changed_leaves_its_origin():
    def reference(x):
        y = x.to(torch.float32)
        y.mul_(3)
        return (x + y).bfloat16()

    def of_weights(x):
        WEIGHT.to(torch.float32, copy=True).zero_()
        WEIGHT.bfloat16().zero_()
        return (x @ WEIGHT.to(x.dtype)).bfloat16()

    (x,) = drawn(torch.bfloat16, 1)(5)
    way, _ = error_of(reference, x)
    assert torch.equal(way.outputs(reference, [x]), 4 * x.double())
    assert torch.equal(way.outputs(of_weights, [x]), x.double() @ WEIGHT.double())


def test_fp8_and_whole_numbers_stay():
    """What they round is another function: the exact answer rounds, too."""

    def reference(x):
        small = (x.float() * 8).to(torch.float8_e4m3fn)
        level = (x.float() * 8).round().to(torch.int8)
        return (small.float() @ WEIGHT).bfloat16(), level, level.float().mean(-1)

    (x,) = drawn(torch.bfloat16, 1)(5)
    way, (error, levels, _) = error_of(reference, x)
    right = (x.double() * 8).to(torch.float8_e4m3fn).double() @ WEIGHT.double()
    assert torch.allclose(way.outputs(reference, [x])[0], right) and 0 < error < 1e-2 and levels == 0


def test_fp8_inputs_are_what_they_are():
    x = torch.randn(ROWS, DIM).to(torch.float8_e4m3fn)
    with Widening(torch.float64, {}):
        assert x.dtype == torch.float8_e4m3fn and x.float().dtype == torch.float64
    way, (error,) = error_of(lambda x, scale: (x.float() * scale @ WEIGHT).bfloat16(), x, torch.rand(ROWS, 1))
    assert way.dtype == torch.float64 and 0 < error < 1e-2


def test_indices_may_be_whole_numbers_and_bits_of_them_may_be_read():
    def reference(x, index, packed):
        scale = packed.view(torch.bfloat16)
        return (x.float()[index] * scale.float()).bfloat16()

    packed = torch.rand(ROWS, 1).bfloat16().view(torch.int16)
    way, (error,) = error_of(reference, *drawn(torch.bfloat16, 1)(5), torch.arange(ROWS).flip(0), packed)
    assert way.dtype == torch.float64 and 0 < error < 1e-2


def test_a_tensor_of_its_own_that_it_writes_is_afterwards_as_it_was():
    buffer = torch.zeros(ROWS, DIM, dtype=torch.bfloat16)

    def reference(x):
        buffer[0].copy_(x[0])
        buffer[1:].copy_(x[1:] * 0.3)
        return buffer * 0.3

    (x,) = drawn(torch.bfloat16, 1)(5)
    way, (error,) = error_of(reference, x)
    buffer.zero_()
    assert torch.equal(way.outputs(reference, [x])[0], x[0].double() * 0.3) and not buffer.any() and 0 < error < 1e-2


def test_float64_is_exact_as_it_is():
    way, (error,) = error_of(lambda x: x.double().cumsum(0), *drawn(torch.bfloat16, 1)(5))
    assert way.dtype == torch.float64 and error == 0


def test_what_is_drawn_is_the_same():
    def reference(x):
        torch.manual_seed(1)
        return (x.float() @ torch.randn(DIM, DIM)).bfloat16()

    _, (error,) = error_of(reference, *drawn(torch.bfloat16, 1)(5))
    assert error < 1e-2


def test_what_asks_for_the_dtype_of_an_intermediate_is_judged_too():
    def equal(x, w):
        y = x * 2
        assert y.dtype == w.dtype, "two dtypes"
        return (y @ w.T).float().bfloat16()

    way, _ = error_of(equal, *drawn(torch.bfloat16, 2)(5))
    assert way == Way(torch.float64, told=False)


def test_a_compiled_reference_is_judged_as_it_is_written():
    def reference(x):
        return (x.float() @ WEIGHT).bfloat16()

    way, (error,) = error_of(torch.compile(reference, backend="eager"), *drawn(torch.bfloat16, 1)(5))
    assert way.dtype == torch.float64 and 0 < error < 1e-2


# --- what is not judged -----------------------------------------------------------------------------------------------


def doubles_on(limit):
    """A reference whose memory ends at so many bytes of a number."""

    def reference(x):
        y = x.float() @ WEIGHT
        if y.element_size() > limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return y.bfloat16()

    return reference


def test_without_memory_for_float64_the_answer_is_in_float32():
    way, (error,) = error_of(doubles_on(4), *drawn(torch.bfloat16, 1)(5))
    assert way.dtype == torch.float32 and 0 < error < 1e-2


def without_room(x):
    y = x * 2
    if y.element_size() > 2:
        raise torch.OutOfMemoryError("CUDA out of memory")
    return y


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        (without_room, "OutOfMemoryError: CUDA out of memory"),
        (lambda x: x.view(torch.int16).float(), "TypeError: it reads the bits of its numbers"),
        (lambda x: torch.from_numpy(x.float().numpy().astype("float32")), "it returns torch.float32 for torch.float64"),
        (lambda x: x.float() + x.bfloat16().float().sum(0).bfloat16(), "and a kernel may be 1e-05 away"),
    ],
)
def test_a_reference_without_an_exact_answer_says_why(reference, why):
    with pytest.raises(Inexact) as error:
        error_of(reference, *drawn(torch.bfloat16, 1)(5))
    assert why in str(error.value)


def test_a_problem_without_an_exact_answer_is_not_judged():
    with pytest.raises(Unfit, match="no exact answer, in float64 or float32: TypeError: it reads the bits"):
        why_wrong(lambda x: x.view(torch.int16).float(), lambda x: x, drawn(torch.bfloat16, 1))


def test_the_reason_is_what_is_wrong_with_values_if_there_are_any():
    """torch.nn.LSTM refuses an input of another dtype than its weights; that its values were those of tf32 was not said."""

    def reference(x):
        if x.dtype == torch.float32 and not torch.equal(x, x.to(torch.float32)):
            raise ValueError("dtypes differ")
        return x.to(torch.bfloat16).float() if x.dtype == torch.float32 else x.sin()

    x = torch.randn(64, 64)
    with pytest.raises(Inexact, match=r"away from that in torch\.float64"):
        way_of(reference, [x], [reference(x)], lambda out: [out])


@pytest.mark.parametrize(("is_cuda", "dtype", "allowed", "said"), [
    (True, torch.float32, True, True), (True, torch.float32, False, False), (False, torch.float32, True, False),
    (True, torch.bfloat16, True, False),
])  # fmt: skip
def test_tf32_is_named_where_it_may_be_the_reason(is_cuda, dtype, allowed, said, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
    assert widening._may_be_tf32(SimpleNamespace(is_cuda=is_cuda, dtype=dtype)) is said


@pytest.mark.parametrize("function", [
    lambda x: torch.nn.functional.normalize(x, dim=-1),
    lambda x: torch.nn.functional.poisson_nll_loss(x, x.abs(), reduction="none"),
])  # fmt: skip
def test_only_functions_that_draw_random_numbers_are_said_to(function):
    """`normalize` was: its name begins like that of `normal_`."""
    x = torch.randn(64, 64)
    assert way_of(function, [x], [function(x)], lambda out: [out]).dtype == torch.float64
    with pytest.raises(Inexact, match="draws random numbers"):
        way_of(lambda x: x + torch.empty_like(x).normal_(), [x], [x], lambda out: [out])
