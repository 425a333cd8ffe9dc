"""measure() of callables whose output is not one new floating-point tensor."""

import pytest

torch = pytest.importorskip("torch")

from callables import (  # noqa: E402
    COLS,
    ROWS,
    has_no_speedup,
    is_compared,
    one_thread,  # noqa: F401
    own_lock,  # noqa: F401
    quick,
    softmax,
)


def levels(x):
    return (x * 20).round().clamp(-128, 127).to(torch.int8)


def mean_and_spread(x):
    return x.mean(-1), x.std(-1)


def right_half(call):
    """Right in the first half of the rows; the rest is that of the first row."""

    def half(x):
        out = call(x)
        out[ROWS // 2 :] = out[:1]
        return out

    return half


MORE = pytest.mark.thorough("more outputs of the same kind: `make test` measures one")

# --- whole numbers and truth values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, other",
    [
        (lambda x: x.argmax(-1), lambda x: x.max(-1).indices),
        pytest.param(lambda x: x > 0.5, lambda x: x.gt(0.5), marks=MORE),
        (levels, lambda x: torch.round(x * 20).clamp(-128, 127).to(torch.int8)),
        pytest.param(lambda x: x.argmax(-1).int(), lambda x: x.max(-1).indices.int(), marks=MORE),
    ],
    ids=["indices", "bool", "levels", "int32"],
)
@pytest.mark.parametrize("reference", [True, pytest.param(False, marks=MORE)], ids=["reference", "no reference"])
def test_integer_and_boolean_outputs_are_accepted_and_checked(call, other, reference):
    candidates = {"other": other, "half": right_half(call), "same": lambda x: torch.full_like(call(x), 1)}
    found = quick(candidates, call, reference=call if reference else None)
    assert is_compared(found["other"])
    assert found["other"].correct is (True if reference else None)
    word = "incorrect" if reference else "disagrees with its baseline"
    assert has_no_speedup(found["half"], word) and has_no_speedup(found["same"], word)
    assert "elements differ" in found["half"].why or "the same" in found["half"].why, found["half"].why


def test_levels_may_be_rounded_as_eager_pytorch_rounds_and_not_wrap():
    """In 16 bits eager PyTorch rounds one level in a hundred to another one than float64 does."""

    def drawn(seed):
        return (torch.randn(ROWS, COLS).half(),)

    def wraps(x):
        out = levels(x)
        return torch.where(x > 2.7, -out, out)

    candidates = {"right": levels, "one more": lambda x: levels(x) + 1, "wraps": wraps}
    found = quick(candidates, levels, drawn, reference=levels)
    assert found["right"].correct is True
    assert has_no_speedup(found["one more"], "incorrect") and "elements differ, allowed " in found["one more"].why
    assert has_no_speedup(found["wraps"], "incorrect") and "largest difference " in found["wraps"].why


@pytest.mark.parametrize(
    "dtype", [torch.int8, *(pytest.param(one, marks=MORE) for one in (torch.bool, torch.int64))], ids=str
)
def test_one_buffer_and_half_written_buffers_of_whole_numbers_are_seen(dtype):
    buffer = torch.empty(ROWS, COLS, dtype=dtype)

    def call(x):
        return (x > 0).to(dtype)

    def half(x):
        out = torch.empty(ROWS, COLS, dtype=dtype)
        out[: ROWS // 2] = call(x)[: ROWS // 2]
        return out

    found = quick({"one": lambda x: buffer.copy_(call(x)), "half": half}, call, reference=call)
    assert has_no_speedup(found["one"], "incorrect") and "calls share one output" in found["one"].why
    assert has_no_speedup(found["half"], "incorrect"), str(found["half"])


# --- several ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reference", [mean_and_spread, pytest.param(None, marks=MORE)], ids=["reference", "no reference"]
)
def test_each_of_several_outputs_is_checked(reference):
    candidates = {
        "right": lambda x: [x.mean(-1), (x - x.mean(-1, True)).square().sum(-1).div(COLS - 1).sqrt()],
        "second": lambda x: (x.mean(-1), torch.ones(ROWS)),
        "one": lambda x: x.mean(-1),
    }
    found = quick(candidates, mean_and_spread, reference=reference)
    assert is_compared(found["right"])
    word = "incorrect" if reference else "disagrees with its baseline"
    assert has_no_speedup(found["second"], word) and has_no_speedup(found["one"], word)
    assert "not a tuple of 2 tensors" in found["one"].why


def test_values_and_indices_together():
    found = quick(
        {"right": lambda x: tuple(x.max(-1)), "wrong": lambda x: (x.amax(-1), x.argmin(-1))},
        lambda x: tuple(x.max(-1)),
        reference=lambda x: tuple(x.max(-1)),
    )
    assert found["right"].correct is True
    assert has_no_speedup(found["wrong"], "incorrect")
    assert found["wrong"].why.startswith(f"output 2 of 2: {ROWS} of {ROWS} elements differ")


# --- written into an argument -----------------------------------------------------------------------------------------


def into(x, out):
    torch.softmax(x, -1, out=out)


def half_into(x, *, out):
    out[: ROWS // 2] = softmax(x)[: ROWS // 2]


@pytest.mark.parametrize(
    "more",
    [
        {"reference": softmax},
        {"baseline": softmax},
        {"out": torch.empty_like},
        {"out": torch.empty_like, "reference": softmax},
    ],
    ids=["reference", "baseline", "out", "out and reference"],
)
def test_outputs_written_into_an_argument_are_checked(more):
    found = quick(**{"candidates": {"into": into, "half": half_into}} | more)
    assert found["into"].p50_us > 0
    assert found["into"].correct is (True if "reference" in more else None)
    assert has_no_speedup(found["half"], "incorrect")
    assert "never written" in found["half"].why


def test_what_may_take_an_output_takes_one_if_it_is_made_for_it():
    taken = []

    def may(x, out=None):
        taken.append(out is not None)
        return torch.softmax(x, -1, out=out)

    assert quick(may, softmax, reference=softmax).correct and not any(taken)
    taken.clear()
    assert quick(may, softmax, reference=softmax, out=torch.empty_like).correct and all(taken)


@MORE
def test_two_outputs_are_written_into_a_tuple():
    def both(x, out):
        torch.mean(x, -1, out=out[0])
        torch.std(x, -1, out=out[1])

    assert quick(both, mean_and_spread, reference=mean_and_spread).correct is True
