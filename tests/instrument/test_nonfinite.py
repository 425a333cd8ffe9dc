"""NaN and infinities by design: a kernel must have the same in the same places, and is judged by all others."""

import math

import pytest
import torch
from bringing import SLOW, only
from bringing import judged as judged_isolated

from kernels import measure
from kernels.child.nonfinite import Nonfinite, as_held
from kernels.inprocess.adhoc import Unfit
from kernels.inprocess.pairs import Pair
from kernels.inprocess.reports import _difference
from kernels.inprocess.trials import Wrong, _problem, judged

INF, NAN = math.inf, math.nan
ROWS, KEYS, DIM = 128, 48, 64
EMPTY = slice(3, 40)
"""Rows of which nothing is visible."""


def give(seed, dtype=torch.bfloat16):
    torch.manual_seed(seed)
    return [torch.randn(shape).to(dtype) for shape in ((ROWS, DIM), (KEYS, DIM))]


def attention(q, k):
    """(softmax of the scores times k with rows of NaN, and their logarithm with -inf)."""
    scores = q.float() @ k.float().T / 8
    scores[EMPTY] = -INF
    return (torch.softmax(scores, -1) @ k.float()).to(q.dtype), torch.logsumexp(scores, -1)


def in_base_2(q, k):
    scores = q.float() @ k.float().T / 8 * 1.44269504
    scores[EMPTY] = -INF
    p = torch.exp2(scores - scores.amax(-1, keepdim=True))
    total = p.sum(-1, keepdim=True)
    lse = (total.log2() + scores.amax(-1, keepdim=True))[:, 0] / 1.44269504
    lse[EMPTY] = -INF
    return (p @ k.float() / total).to(q.dtype), lse


def changed(number, where, value):
    def kernel(q, k):
        outs = attention(q, k)
        outs[number][where] = value
        return outs

    return kernel


def scaled(q, k):
    out, lse = attention(q, k)
    return (out.float() * 1.003).to(out.dtype), lse


def why_wrong(reference, kernel, give=give):
    problem = _problem(Pair("mine", kernel, reference, reference, give), "cpu")
    try:
        judged(problem, kernel, "cpu", 12)
    except Wrong as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (attention, ""),
        (in_base_2, ""),
        (changed(1, 5, 0.0), "output 2 of 2: 1 elements are finite where the reference is NaN or Inf"),
        (changed(0, slice(3, 5), 0.0), "128 elements are finite where the reference is NaN or Inf"),
        (changed(1, 5, INF), "1 elements have another of NaN, +Inf and -Inf than the reference"),
        (changed(1, 5, NAN), "1 elements have another of NaN"),
        (changed(1, 60, -INF), "1 elements are NaN or Inf where the reference is finite"),
        (changed(0, (60, 1), NAN), "1 elements are NaN or Inf where the reference is finite"),
        (changed(0, 60, 0.0), "largest error"),
        (changed(0, (slice(None), 7), 0.0), "finite where the reference is NaN"),
        (changed(0, (slice(40, None), 7), 0.0), "largest error"),
        (changed(0, slice(40, None), 0.25), "largest error"),
        (scaled, "on average"),
    ],
)  # fmt: skip
def test_a_kernel_has_nan_and_infinities_where_the_reference_has_them(kernel, why):
    found = why_wrong(attention, kernel)
    assert (why in found) if why else not found, found


def test_a_few_elements_are_judged_by_several_seeds_without_their_infinities():
    def few(q, k):
        return attention(q, k)[1][:8]

    assert not why_wrong(few, lambda q, k: in_base_2(q, k)[1][:8])
    assert "largest error" in why_wrong(few, lambda q, k: in_base_2(q, k)[1][:8] + 1e-3)
    assert "NaN or Inf where" in why_wrong(few, lambda q, k: few(q, k) * INF)


def test_every_element_the_same_is_said_of_the_finite_ones():
    def masked(x, _):
        return torch.where(x > 0, -INF, x)

    constant = why_wrong(masked, lambda x, _: torch.where(x > 0, -INF, 1e-30))
    assert constant
    assert not why_wrong(lambda x, _: torch.where(x > 0, -INF, 1.0), lambda x, _: torch.where(x > 0, -INF, 1.0))


def test_what_is_nowhere_finite_judges_nothing():
    with pytest.raises(Unfit, match="the reference's output is nowhere finite on these inputs"):
        why_wrong(lambda x, _: x * NAN, lambda x, _: x * NAN)


def test_values_that_the_dtype_cannot_hold_are_infinite_if_the_reference_says_so():
    exact, plain = torch.tensor([1e5, 1e5, 2.0]).double(), torch.tensor([INF, 65504.0, NAN]).half()
    right, yard = as_held(exact, plain)
    assert right.tolist() == [INF, 1e5, 2.0]
    assert yard.tolist()[:2] == [INF, 65504.0]
    right, yard = as_held(torch.tensor([65400.0, 20.0]), torch.tensor([INF, INF]).half())
    assert right.tolist() == [INF, 20.0]
    assert yard.tolist() == [65408.0, INF]


def test_an_overflow_by_design_is_judged():
    def give_halves(seed):
        return give(seed, torch.float16)

    def powers(q, _):
        return (q * 3).float().pow(8).to(q.dtype)

    assert not why_wrong(powers, powers, give_halves)
    assert "finite where" in why_wrong(powers, lambda q, k: powers(q, k).clamp(max=6e4), give_halves)


def test_measure_judges_nan_by_design():
    def masked(x):
        return torch.where(x > 2, NAN, x * 2)

    found = measure(
        {"same": masked, "zeros": lambda x: masked(x).nan_to_num(0)}, masked, inputs=(torch.randn(64, 256),),
        reference=masked, device="cpu",
    )  # fmt: skip
    assert found["same"].correct
    assert not found["zeros"].correct
    assert "finite where the reference is NaN" in found["zeros"].why


def test_reports_compare_what_is_finite():
    right = torch.tensor([1.0, -INF, NAN, 4.0])
    assert _difference(right.clone(), right, "torch") == ""
    assert "1 elements are finite" in _difference(torch.tensor([1.0, 0.0, NAN, 4.0]), right, "torch")
    assert "another of NaN" in _difference(torch.tensor([1.0, INF, NAN, 4.0]), right, "torch")
    assert "NaN or Inf where" in _difference(torch.tensor([1.0, -INF, NAN, INF]), right, "torch")
    assert "of its norm" in _difference(torch.tensor([1.0, -INF, NAN, 4.5]), right, "torch")
    with pytest.raises(ValueError, match="nowhere finite"):
        _difference(right, right * NAN, "torch")


def test_isolated_kernels_are_judged_beside_nan():
    answer = "torch.where(x > 1, float('nan'), x * 2)"
    assert judged_isolated(*only(answer))["correct"]


@SLOW
@pytest.mark.parametrize(
    ("new", "why"),
    [
        ("torch.where(x > 1, 0.0, x * 2)", "finite where the reference is NaN"),
        ("torch.where(x > 0.5, float('nan'), x * 2)", "NaN or Inf where the reference is finite"),
    ],
)
def test_isolated_kernels_with_other_nan_are_incorrect(new, why):
    found = judged_isolated(*only("torch.where(x > 1, float('nan'), x * 2)", new=new))
    assert not found["correct"]
    assert why in found["why"]


def test_where_rounding_decides_on_overflow_not_any_finite_number_is_right():
    special = Nonfinite()
    right, yard = torch.tensor([INF, INF, INF]), torch.tensor([60000.0, 60000.0, 60000.0])
    special.kept(right, yard, torch.tensor([59968.0, -3.0, INF]))
    assert special.reading() == {"nonfinite_places": 3, "made_finite": 1, "other_nonfinite": 0}
