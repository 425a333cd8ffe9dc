"""Where rounding decides: places that a reference cannot decide excuse honest kernels, and no others."""

import pytest
import torch
from bringing import SLOW, only
from bringing import judged as judged_isolated

from kernels.analysis.correctness import judge, why_wrong
from kernels.child import nudges
from kernels.child.nudges import Nudge, Nudges, error_of
from kernels.child.reference import Reference, measure
from kernels.child.widening import Way
from kernels.inprocess.pairs import Pair
from kernels.inprocess.trials import _problem
from kernels.isolated.brought import Values

ROWS, DIM, TOKENS, BEST = 64, 256, 1000, 20
SEEDS = (20, 21, 22, 23)
torch.manual_seed(1)
WEIGHT = (torch.randn(TOKENS, DIM) / 16).bfloat16()
PROBLEMS = {}


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def give(seed):
    torch.manual_seed(seed)
    return [torch.randn(ROWS, DIM).bfloat16()]


def judged(reference, kernel, give=give, seeds=SEEDS):
    """What is said of a kernel from these seeds; references and inputs are made once for all of them."""
    if reference not in PROBLEMS:
        problem = _problem(Pair("mine", reference, reference, reference, give), "cpu")
        inputs = [(problem.inputs("cpu", seed), seed) for seed in SEEDS]
        PROBLEMS[reference] = [Reference(problem, one, seed, thorough=True) for one, seed in inputs]
    readings = [measure(kernel(*(one.clone() for one in of.inputs.tensors)), of) for of in PROBLEMS[reference]]
    return judge(readings[: len(seeds)], "bfloat16")


# --- choices ----------------------------------------------------------------------------------------------------------


def logits(h):
    return h @ WEIGHT.T


def in_two_parts(h):
    half = DIM // 2
    return h[:, :half] @ WEIGHT[:, :half].T + h[:, half:] @ WEIGHT[:, half:].T


def in_float32(h):
    return h.float() @ WEIGHT.float().T


def in_turn(h):
    total = torch.zeros(ROWS, TOKENS)
    for k in range(DIM):
        total += h[:, k : k + 1].float() * WEIGHT[:, k].float()
    return total


def cut(h):
    """The last 32 columns are left out."""
    found = logits(h)
    found[:, -32:] = -30
    return found


CHOICES = {
    "topk": lambda scores: scores.topk(BEST, -1)[1],
    "argmax": lambda scores: scores.argmax(-1),
    "argsort": lambda scores: scores[:, -64:].argsort(-1),
    "bucketize": lambda scores: torch.bucketize(scores.float(), torch.linspace(-1, 1, 33)),
    "threshold": lambda scores: scores.sigmoid() > 0.7,
    "int8": lambda scores: (scores / (scores.abs().amax(-1, keepdim=True) / 127)).round().to(torch.int8),
}
REFERENCES = {name: lambda h, choose=choose: choose(logits(h)) for name, choose in CHOICES.items()}


@pytest.mark.parametrize("scores", [logits, in_two_parts, in_float32, in_turn])
@pytest.mark.parametrize("name", [name for name in CHOICES if name != "argmax"])
def test_another_order_of_near_ties_is_right(name, scores):
    found = judged(REFERENCES[name], lambda h: CHOICES[name](scores(h)))
    assert found["correct"], found["why"]


def changed(name, change):
    def kernel(h):
        out = REFERENCES[name](h).clone()
        change(out)
        return out

    return kernel


def zeros_in_rows(out):
    out[48:] = 0


def zeros_in_one(out):
    out[-1] = 0


def reversed_at_the_end(out):
    out[:, BEST // 2 :] = out[:, BEST // 2 :].flip(-1).clone()


def one_row_reversed(out):
    out[-1] = out[-1].flip(-1).clone()


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("topk", changed("topk", zeros_in_rows)),
        ("topk", changed("topk", zeros_in_one)),
        ("topk", changed("topk", reversed_at_the_end)),
        ("topk", changed("topk", one_row_reversed)),
        ("topk", lambda h: CHOICES["topk"](cut(h))),
        ("argsort", changed("argsort", zeros_in_one)),
        ("bucketize", changed("bucketize", zeros_in_one)),
        ("threshold", changed("threshold", zeros_in_one)),
        ("threshold", lambda h: CHOICES["threshold"](cut(h))),
        ("int8", changed("int8", zeros_in_one)),
    ],
)
def test_wrong_choices_are_not_among_those_that_rounding_gives(name, kernel):
    assert judged(REFERENCES[name], kernel)["correct"] is False


def test_a_wrong_row_is_named_although_eager_pytorch_has_more_elements_wrong():
    found = judged(REFERENCES["topk"], changed("topk", zeros_in_one), seeds=SEEDS[:1])
    assert found["mismatches"] < 2 * found["yard_mismatches"]
    assert "elements have values that no rounding gives, allowed" in found["why"]


@pytest.mark.parametrize(
    ("beyond", "why"),
    [
        ({"implausible": (5, 0), "certain": (5, 0), "missing": (5, 0), "row": (2, 0)}, ""),
        ({"implausible": (6, 0)}, "6 of 1000 elements have values that no rounding gives, allowed 5"),
        ({"implausible": (30, 8)}, ""),
        ({"certain": (6, 0)}, "6 of 1000 elements are wrong where rounding does not matter, allowed 5"),
        (
            {"missing": (6, 0)},
            "6 of 1000 elements are not in their rows although every rounding selects them, allowed 5",
        ),
        ({"row": (3, 0)}, "3 elements of a row have values that no rounding gives, allowed 2"),
    ],
)
def test_the_yardstick_and_chance_say_how_many_may_be_beyond_rounding(beyond, why):
    reading = {"elements": 1000, "mismatches": 100, "yard_mismatches": 80, "levels": False, "constant": False}
    nothing = {"implausible": (0, 0), "certain": (0, 0)}
    found = why_wrong(reading | {"beyond": nothing | beyond}, "float32")
    assert found.startswith(why) if why else not found


def test_a_few_wrong_elements_in_each_seed_are_no_chance():
    def large(seed):
        torch.manual_seed(seed)
        return [torch.randn(512, DIM).bfloat16()]

    def largest(h):
        return logits(h).argmax(-1)

    def last_is_zero(h):
        out = largest(h)
        out[-1] = 0
        return out

    assert judged(largest, lambda h: in_float32(h).argmax(-1), large)["correct"]
    assert judged(largest, largest, large)["undecided"]
    assert judged(largest, last_is_zero, large, SEEDS[:1])["correct"]  # of one seed it may be chance
    assert not judged(largest, last_is_zero, large)["correct"]


def test_it_is_said_how_many_elements_the_reference_cannot_decide():
    found = judged(REFERENCES["topk"], REFERENCES["topk"])
    assert 0.5 * found["elements"] < found["undecided"] < found["elements"]


# --- few values -------------------------------------------------------------------------------------------------------


def scale_of(x):
    return x.float().abs().amax(-1, keepdim=True)


def in_fp8(x):
    scale = scale_of(x) / 448
    return (x.float() / scale).to(torch.float8_e4m3fn).float() * scale


def in_fp8_as_halves(x):
    return in_fp8(x).to(x.dtype)


def by_reciprocal(x):
    largest = scale_of(x)
    return (x.float() * (448 / largest)).to(torch.float8_e4m3fn).float() * (largest / 448)


def to_e5m2(x):
    scale = scale_of(x) / 448
    return (x.float() / scale).to(torch.float8_e5m2).float() * scale


def of_wrong_rows(x):
    out = by_reciprocal(x)
    out[-1] *= 1.01
    return out


def cut_off(x):
    scale = scale_of(x) / 448
    q = x.float() / scale
    step = torch.exp2(q.abs().log2().floor().clamp_min(-6) - 3)
    return (q / step).trunc() * step * scale


@pytest.mark.parametrize(
    ("kernel", "right"),
    [
        (in_fp8, True),
        (by_reciprocal, True),
        (lambda x: by_reciprocal(x) * 1.006, False),
        (to_e5m2, False),
        (of_wrong_rows, False),
        (cut_off, False),
        (lambda x: x.float(), False),
    ],
)
@pytest.mark.parametrize("reference", [in_fp8, in_fp8_as_halves])
def test_fp8_on_a_tie_of_its_grid_may_be_rounded_either_way(reference, kernel, right):
    found = judged(reference, lambda x: kernel(x).to(reference(x).dtype))
    assert found["correct"] is right, found["why"]


def sixteenths(x):
    return (x * 16).round() / 16


def test_a_tie_that_no_rounding_makes_is_decided():
    codes = lambda x: (x * 16).round().to(torch.int8)  # noqa: E731
    assert judged(codes, codes)["correct"]
    assert not judged(codes, lambda x: (x * 16 + 0.5).floor().to(torch.int8))["correct"]
    assert not judged(sixteenths, lambda x: (x * 16 + 0.5).floor() / 16)["correct"]
    above = lambda x: x > 0.5  # noqa: E731
    assert not judged(above, lambda x: x >= 0.5)["correct"]


def test_codes_by_a_reciprocal_are_right():
    def codes(x):
        return (x.float() / (scale_of(x) / 127)).round().to(torch.int8)

    def reciprocal(x):
        return (x.float() * (127 / scale_of(x))).round().to(torch.int8)

    assert judged(codes, reciprocal)["correct"]
    assert not judged(codes, lambda x: (reciprocal(x).float() * 0.99).round().to(torch.int8))["correct"]


# --- nudges -----------------------------------------------------------------------------------------------------------


def test_a_nudge_leaves_what_is_not_rounded_and_has_an_opposite():
    third, half = torch.ones(3).double() / 3, torch.tensor([0.5, 1.5]).double()
    up, down, exact, moved = third.clone(), third.clone(), half.clone(), third.clone()
    Nudge(1e-3, 5, torch.float32)("__truediv__", up)
    Nudge(-1e-3, 5, torch.float32)("div", down)
    Nudge(1e-3, 5, torch.float32)("mul", exact)
    Nudge(1e-3, 5, torch.float32)("transpose", moved)
    assert torch.allclose(up + down, 2 * third, rtol=1e-15)
    assert 0 < (up - third).abs().max() <= 1e-3 / 3
    assert exact.equal(half)
    assert moved.equal(third)


def test_a_smooth_function_has_no_nudged_answers():
    found = Nudges(Way(torch.float64, True), torch.exp, lambda out: [out])
    x = torch.randn(8, 8)
    assert found.answers([x], [x.exp()], [x.double().exp()]) == []


def test_only_jumps_widen_what_is_right():
    right = torch.tensor([[1.0, 2.0, 3.0]]).double()
    nudged = torch.tensor([[[1.0, 1.99999999, 3.0]], [[1.5, 2.00000001, torch.nan]]]).double()
    values = torch.tensor([[1.25, 2.1, 3.5]]).double()
    assert error_of(values, right, nudged).tolist() == [[0.0, pytest.approx(0.1), 0.5]]


def test_what_takes_too_long_is_judged_as_before(monkeypatch):
    monkeypatch.setattr(nudges, "MOST_S", -1.0)

    def reference(h):
        return CHOICES["topk"](logits(h))

    found = judged(reference, reference)
    assert found["correct"]
    assert "undecided" not in found


def test_the_time_for_nudged_answers_is_that_of_the_whole_run(monkeypatch):
    """Each of hundreds of compared outputs could take 20 s of its own."""
    found = Nudges(Way(torch.float64, True), lambda x: (x * 3).argmax(-1), lambda out: [out])
    x = torch.randn(8, 8)
    plain = [(x * 3).argmax(-1)]
    assert found.answers([x], plain, plain) and found.left_s < nudges.MOST_S
    found.left_s = 0.0
    assert [len(one) for one in found.answers([x], plain, plain)] == [0]


def drawn(*shapes):
    def give(seed):
        torch.manual_seed(seed)
        return [torch.randn(shape).bfloat16() for shape in shapes]

    return give


@pytest.mark.parametrize(("wrong", "is_right"), [(4, True), (400, False)])
def test_without_time_a_few_elements_may_differ_and_many_may_not(wrong, is_right, monkeypatch):
    """An honest kernel was called wrong as soon as there was no time left."""

    def reference(x):
        return (x.float() * 3).round().to(torch.int8)

    def kernel(x):
        out = reference(x)
        out.view(-1)[:wrong] += 1
        return out

    monkeypatch.setattr(Nudges, "answers", lambda self, tensors, plain, exact: nudges._unknown(exact))
    assert judged(reference, kernel, drawn((64, 256)))["correct"] is is_right


def test_without_memory_for_answers_whole_numbers_are_judged_as_before(monkeypatch):
    """A wrong kernel that was caught had 1% of its elements free."""

    def reference(x):
        return (x.float() * 3).round().to(torch.int8)

    def kernel(x):
        out = reference(x)
        out[-1, -4:] += 1
        return out

    monkeypatch.setattr(nudges, "MOST_BYTES", 1)
    assert judged(reference, kernel, drawn((64, 256)))["correct"] is False


def test_sums_of_zeros_are_not_nudged():
    """Rows of zeros were, so `x @ w > 0` could be `>= 0`."""
    x, w = torch.randn(64, 32), torch.randn(32, 16)
    x[::4] = 0
    found = Nudges(Way(torch.float64, True), lambda x, w: (x @ w) > 0, lambda out: [out])
    right = [(x.double() @ w.double()) > 0]
    (answers,) = found.answers([x, w], right, right)
    assert len(answers) and not answers[:, ::4].any()


def test_a_single_whole_number_is_judged():
    """Of a count in bfloat16 an exception ended the measurement."""

    def reference(a, b):
        return (((a @ b) * 0.3) > 0.5).sum()

    assert judged(reference, reference, drawn((128, 64), (64, 128)))["correct"] is True


def test_claimed_answers_have_the_shapes_of_the_outputs():
    plain = [torch.zeros(4, dtype=torch.int64)]
    likes = (((4,), torch.int64),)
    assert not Values(plain, plain, [torch.zeros(4, 4, dtype=torch.int64)]).why_not(likes)
    for claim in (torch.zeros(4, 5, dtype=torch.int64), torch.zeros(4, 4)):
        assert "nudged" in Values(plain, plain, [claim]).why_not(likes)
    assert Values(plain, plain, [plain[0][None]] * 2).why_not(likes)


PICK = "(x @ WEIGHT).topk(20, -1)[1]"
MORE = "torch.manual_seed(0)\nWEIGHT = torch.randn(256, 1000).bfloat16()"


def test_isolated_choices_are_judged_by_what_rounding_gives():
    wrong = f"{PICK} * (torch.arange(32) < 31)[:, None]"
    found = judged_isolated(*only(PICK, "torch.randn(32, 256).bfloat16()", wrong, MORE))
    assert not found["correct"]
    # Which input sets are drawn is chance, and with them which limit is passed first.
    assert "no rounding gives" in found["why"] or "elements differ" in found["why"]


@SLOW
@pytest.mark.parametrize("new", [PICK, "(x.float() @ WEIGHT.float()).topk(20, -1)[1]"])
def test_isolated_choices_of_other_roundings_are_right(new):
    found = judged_isolated(*only(PICK, "torch.randn(32, 256).bfloat16()", new, MORE))
    assert found["correct"], found["why"]
    assert found["undecided"]
