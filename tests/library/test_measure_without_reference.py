"""measure() without a reference: a ratio, marked; no word; and what disagrees with the baseline gets no ratio."""

import pytest

torch = pytest.importorskip("torch")

from callables import (  # noqa: E402
    COLS,
    ROWS,
    four_times,
    half_written,
    has_an_interval,
    has_no_speedup,
    is_compared,
    is_interrupted,
    is_quiet,
    one_thread,  # noqa: F401
    own_lock,  # noqa: F401
    quick,
    softmax,
    when_quiet,
    word_is,
)

from kernels.inprocess.judged import ASK  # noqa: E402
from kernels.workload import Protocol  # noqa: E402

LONG = Protocol(min_rounds=10, max_rounds=10, warmup_s=0.3, block_ms=20.0, verify_seeds=1)
MORE = pytest.mark.thorough("more callables of the same kind: `make test` measures one")
WIDE = (16, 65_536)
"""So wide that the largest value of a softmax is below 1e-2."""


def wide(seed):
    return (torch.randn(WIDE),)


def smallest_row(x, factor):
    """The factor for the row of softmax with the smallest norm, 1 for others: it is at most 1/sqrt(rows) of the whole."""
    norms = softmax(x).norm(dim=-1, keepdim=True)
    return torch.where(norms == norms.min(), factor, 1.0)


def relative(found):
    """Whether a result is refused because it differs from the baseline's, relative to its norm."""
    assert has_no_speedup(found, "disagrees with its baseline")
    assert found.p50_us > 0 and found.baseline.p50_us > 0
    return "disagrees with the baseline: " in found.why


@pytest.mark.thorough("a whole measurement: `make test` checks what it calls correct")
def test_a_ratio_is_marked_and_the_first_note_says_how_to_give_a_reference():
    found = when_quiet(softmax, four_times)
    if is_interrupted(found):
        pytest.skip(f"this machine is too busy: {found.why}")
    assert (found.word, found.correct) == ("correctness unknown", None)
    assert has_an_interval(found) and (found.speedup > 2 or not is_quiet(found))
    assert found.why.startswith("not checked against a reference; agrees with the baseline")
    assert found.notes[0] == ASK
    lines = str(found).splitlines()
    assert lines[0].startswith("softmax: correctness unknown, ")
    assert "  correct: unknown" in lines
    assert not {"FASTER", "SLOWER", "SAME", "UNDECIDED"} & set(str(found).replace(":", " ").replace(",", " ").split())


@MORE
def test_the_baseline_is_the_reference_where_the_caller_says_so():
    found = when_quiet({"right": softmax, "wrong": lambda x: softmax(x) * 1.001}, four_times, reference="baseline")
    assert word_is(found["right"], "FASTER") and found["right"].correct
    assert has_no_speedup(found["wrong"], "incorrect")
    assert ASK not in found["right"].notes


@pytest.mark.parametrize(
    "other, how",
    [
        (lambda x: softmax(x) + 0.1, "relative difference "),
        pytest.param(lambda x: softmax(x)[0], "returned shape (256,), not (128, 256)", marks=MORE),
        pytest.param(lambda x: softmax(x).half(), "returned torch.float16, not torch.float32", marks=MORE),
        pytest.param(lambda x: softmax(x) * torch.nan, "relative difference inf", marks=MORE),
        (lambda x: softmax(x) * smallest_row(x, 1.0002), "relative difference of a row "),
    ],
)
def test_who_disagrees_with_the_baseline_has_a_time_and_no_speedup(other, how):
    found = quick(other, softmax)
    assert relative(found) and found.correct is None
    assert found.why.startswith(f"not checked against a reference; disagrees with the baseline: {how}")


@pytest.mark.parametrize(
    "baseline",
    [
        pytest.param(softmax, id="softmax"),
        pytest.param(lambda x: torch.nn.functional.normalize(x, dim=-1) / 64, id="normalize", marks=MORE),
        pytest.param(lambda x: x.abs().amin(-1), id="minimum", marks=MORE),
    ],
)
def test_zeros_agree_with_nothing(baseline):
    """Every correct value is below 1e-2."""
    found = quick(lambda x: torch.zeros_like(baseline(x)), baseline, wide)
    assert relative(found)
    assert "every element of the output is the same" in found.why


def test_fewer_bits_inside_are_another_result():
    found = quick(
        {"half": lambda x: softmax(x.half()).float(), "other order": lambda x: x.exp() / x.exp().sum(-1, True)}, softmax
    )
    assert relative(found["half"])
    assert is_compared(found["other order"])


def test_16_bits_may_differ_as_two_correct_results_do():
    def drawn(seed):
        return (torch.randn(ROWS, COLS).half(),)

    found = quick(
        {"in floats": lambda x: softmax(x.float()).half(), "coarse": lambda x: softmax((x * 8).round() / 8)},
        softmax,
        drawn,
    )
    assert is_compared(found["in floats"])
    assert relative(found["coarse"])


def test_what_is_wrong_by_itself_is_incorrect():
    assert has_no_speedup(quick(half_written, softmax), "incorrect")


# --- who remembers ----------------------------------------------------------------------------------------------------


def remembering(work):
    """Keeps what it computed for a tensor, and gives it back while tensors come in the order of the last time and their
    version counters stand still: only timed calls are like that."""
    known, after, last = {}, {}, [0]

    def remembers(x):
        place = x.data_ptr()
        rotating = after.get(last[0]) == place != last[0]
        after[last[0]], last[0] = place, place
        if rotating and place in known and known[place][0] == x._version:
            return known[place][1].clone()
        out = work(x)
        if place in known:
            known[place][1].copy_(out)
        else:
            known[place] = [0, out.clone()]
        known[place][0] = x._version
        return out

    return remembers


@pytest.mark.parametrize(
    "reference, word",
    [(softmax, "incorrect"), pytest.param(None, "disagrees with its baseline", marks=MORE)],
    ids=["with a reference", "without"],
)
@pytest.mark.thorough("a second way to remember: `make test` has one")
def test_who_remembers_by_version_counter_while_inputs_rotate_is_wrong(reference, word):
    """Input sets get new values without a count, as by a kernel that is not PyTorch's."""

    def big(seed):
        return (torch.randn(1024, 1024),)

    found = quick(remembering(four_times), four_times, big, reference=reference, protocol=LONG)
    if found.word == "suspect":  # a busy machine: the blocks show it before the outputs do
        assert "some calls do the work of other calls" in found.why
        return
    assert has_no_speedup(found, word)
    assert "in timed calls: " in found.why


def test_who_remembers_the_last_measurement_gains_nothing():
    old, new = {}, {}

    def slow(x):
        for _ in range(11):
            softmax(x)
        return softmax(x)

    def remembers(x):
        key = x.view(-1)[:8].sum().item()
        if key in old:
            return old[key].clone()
        out = slow(x)
        if len(new) < 600:
            new[key] = out.clone()
        return out

    first = quick(remembers, slow, reference=softmax)
    old.update(new)
    again = when_quiet(remembers, slow, reference=softmax)
    assert len(old) > 100
    assert again.seed != first.seed
    assert again.speedup is None or again.low < 1.5, str(again)
    named = Protocol(min_rounds=5, max_rounds=5, warmup_s=0.0, seed=first.seed)
    assert quick(softmax, protocol=named).seed == first.seed
