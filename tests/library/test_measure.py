"""measure(): callables that people bring, measured for real on the CPU, in this process."""

import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from callables import (  # noqa: E402
    COLS,
    ROWS,
    four_times,
    half_written,
    has_an_interval,
    has_no_speedup,
    inputs,
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

from kernels import Measured  # noqa: E402
from kernels.inprocess.adhoc import CONSTANT, DRAWN  # noqa: E402
from kernels.parent.doubts import Doubts  # noqa: E402
from kernels.workload import Protocol  # noqa: E402

MORE = pytest.mark.thorough("more callables of the same kind: `make test` measures one")

# --- the word ---------------------------------------------------------------------------------------------------------


@pytest.mark.journey
def test_a_slower_callable_is_slower_and_says_how_it_was_measured():
    found = when_quiet(four_times, softmax, reference=softmax)
    assert isinstance(found, Measured)
    assert word_is(found, "SLOWER")
    assert (found.name, found.correct) == ("four_times", True)
    assert has_an_interval(found)
    assert found.p50_low_us <= found.p50_us <= found.p50_high_us
    if is_quiet(found) and not is_interrupted(found):
        assert 0.1 < found.low < found.high < 0.6
        assert found.p50_us > 1.5 * found.baseline.p50_us > 0
        assert "four_times stopped after round 8: less than half as fast as baseline" in found.notes
    assert (found.rounds, found.baseline.rounds) == (8, 8)
    assert found.n >= 4 * 8 and found.baseline.n >= 4 * 8
    assert (found.mode, found.margin >= 0.01, len(found.aa)) == ("cpu", True, 3)


def test_a_callable_against_itself_is_not_faster():
    found = quick(softmax, softmax, reference=softmax)
    assert found.word in ("SAME", "UNDECIDED")
    assert (found.correct, found.rounds) == (True, 8)


@pytest.mark.thorough("a whole measurement of several callables: `make test` has one")
def test_several_are_timed_in_the_same_rounds():
    found = when_quiet({"once": softmax, "wrong": lambda x: softmax(x) + 1e-3}, four_times, reference=softmax)
    assert list(found) == ["once", "wrong"]
    assert word_is(found["once"], "FASTER")
    assert is_interrupted(found["once"]) or not is_quiet(found["once"]) or found["once"].speedup > 2
    assert has_no_speedup(found["wrong"], "incorrect")
    both = quick({"one": softmax, "two": softmax}, softmax)
    assert both["one"].baseline == both["two"].baseline
    assert both["one"].aa == both["two"].aa


def test_fewer_than_eight_rounds_need_more():
    few = Protocol(min_rounds=7, max_rounds=7, warmup_s=0, block_ms=0.1, verify_seeds=1)
    found = quick(softmax, softmax, reference=softmax, protocol=few)
    assert (found.word, found.rounds) == ("needs more rounds", 7)
    assert has_an_interval(found)


def test_what_cannot_be_told_apart_from_interruptions_is_undecided_and_nobody_is_accused(monkeypatch):
    def unclear(doubts, name, timed):
        doubts.unclear |= {name: "others interrupted its calls"} if name == "softmax" else {}
        return ""

    monkeypatch.setattr(Doubts, "_why_uneven", unclear)
    found = quick(softmax, four_times, reference=softmax)
    assert has_no_speedup(found, "UNDECIDED") and found.p50_us > 0
    assert (found.correct, found.why) == (True, "in timed calls: others interrupted its calls")


def test_without_a_baseline_there_is_a_latency_and_no_word():
    found = quick({"one": softmax, "two": four_times})
    for mine in found.values():
        assert has_no_speedup(mine, "")
        assert mine.baseline is None
        assert mine.p50_us > 0 and mine.n > 0
        assert (mine.correct, mine.why) == (None, "not checked against a reference")
        assert "correctness unknown" in mine.notes[0]


def test_flops_and_bytes_give_rates():
    found = quick(softmax, flops=8 * ROWS * COLS, bytes_moved=8 * ROWS * COLS)
    assert found.tflops == pytest.approx(8 * ROWS * COLS / found.p50_us / 1e6)
    assert found.gb_per_s == pytest.approx(8 * ROWS * COLS / found.p50_us / 1e3)
    assert found.limit_share is None, "no peak is known of a CPU"
    assert quick(softmax).tflops is None


# --- correctness ------------------------------------------------------------------------------------------------------


def test_a_wrong_output_has_no_speedup_and_no_time():
    found = quick(lambda x: softmax(x) * 1.001, softmax, reference=softmax)
    assert has_no_speedup(found, "incorrect")
    assert (found.correct, found.p50_us, found.n, found.baseline) == (False, None, 0, None)
    assert "largest error" in found.why


@pytest.mark.parametrize("reference", [softmax, pytest.param(None, marks=MORE)], ids=["reference", "no reference"])
def test_what_is_wrong_by_itself_is_incorrect_with_and_without_a_reference(reference):
    buffer = torch.empty(ROWS, COLS)
    wrong = {
        "half written": (half_written, "elements of the output were never written"),
        "one buffer": (lambda x: buffer.copy_(softmax(x)), "calls share one output"),
        "in place": (lambda x: x.copy_(softmax(x)).clone(), "the kernel changed its inputs"),
    }
    found = quick({name: call for name, (call, _) in wrong.items()}, softmax, reference=reference)
    for name, (_, why) in wrong.items():
        assert has_no_speedup(found[name], "incorrect")
        assert found[name].correct is False
        assert why in found[name].why


def test_right_when_checked_and_wrong_when_timed():
    calls = 0

    def tires(x):
        nonlocal calls
        calls += 1
        return softmax(x) + (calls > 20)

    found = quick(tires, softmax, reference=softmax)
    assert has_no_speedup(found, "incorrect")
    assert found.why.startswith("in timed calls: largest error 1")


def test_a_wrong_baseline_is_judged_by_the_reference_too():
    found = quick(softmax, lambda x: softmax(x) + 0.1, reference=softmax)
    assert has_no_speedup(found, "its baseline is incorrect")
    assert (found.correct, found.baseline, found.p50_us > 0) == (True, None, True)
    assert found.why.startswith("the baseline: largest error 0.1")


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=MORE)])
def test_16_bits_are_judged_by_the_references_own_error(dtype):
    def other_order(x):
        return (x.float() - x.float().amax(-1, keepdim=True)).softmax(-1).to(x.dtype)

    candidates = {"right": other_order, "coarse": lambda x: softmax((x * 8).round() / 8)}
    found = quick(candidates, softmax, lambda seed: (torch.randn(ROWS, COLS).to(dtype),), reference=softmax)
    assert (found["right"].correct, found["coarse"].correct) == (True, False)


def test_a_reference_that_does_not_take_float64_is_computed_in_float32():
    def picky(x):
        if (x + 0).dtype == torch.float64:
            raise RuntimeError("no doubles here")
        return softmax(x)

    found = quick(softmax, reference=picky, inputs=lambda seed: (torch.randn(ROWS, COLS).half(),))
    assert found.correct is True
    assert "the reference does not support float64; computed in torch.float32" in found.notes
    with pytest.raises(ValueError, match=r"no exact answer, in float64 or float32: RuntimeError: no doubles here"):
        quick(softmax, reference=picky)


def test_a_reference_that_casts_is_computed_without_its_casts():
    def casts(x):
        return (x.float() * 3).softmax(-1).half()

    candidates = {"right": lambda x: (3 * x).softmax(-1).half(), "wrong": lambda x: (3 * x).softmax(-1).half() * 1.01}
    found = quick(candidates, reference=casts, inputs=inputs)
    assert (found["right"].correct, found["wrong"].correct) == (True, False)


def test_an_input_that_is_not_initialised_is_filled_and_named():
    """Two draws of one seed differed there, and inputs(seed) was said to be not deterministic."""

    def uninitialised(seed):
        x = torch.randn(ROWS, COLS)
        torch.full((ROWS, COLS), float(next(COUNT)))  # what new memory holds
        return x, torch.empty(ROWS, COLS)

    named = "inputs[1] is not initialised by inputs(seed)"
    candidates = {"right": lambda x, room: softmax(x), "writes": lambda x, room: room.copy_(softmax(x)).clone()}
    found = quick(candidates, inputs=uninitialised, reference=lambda x, room: softmax(x))
    assert (found["right"].correct, found["writes"].why) == (True, "the kernel changed its inputs")
    assert any(note.startswith(named) for note in found["right"].notes), found["right"].notes


def test_a_scalar_is_an_output_too():
    assert quick(lambda x: x.square().sum(), reference=lambda x: (x * x).sum()).correct is True


# --- suspicion --------------------------------------------------------------------------------------------------------


def test_who_changes_global_state_is_suspect_and_it_is_put_back():
    def careless(x):
        torch.set_default_dtype(torch.float64)  # the next inputs would be drawn in it
        return softmax(x)

    found = quick(careless, softmax, reference=softmax)
    assert has_no_speedup(found, "suspect")
    assert found.why == "changed global state: default dtype: torch.float64 instead of torch.float32"
    assert torch.get_default_dtype() == torch.float32


def test_nobody_is_blamed_for_what_the_reference_changes():
    def exact(x):
        torch.set_default_dtype(torch.float64)
        return softmax(x)

    found = quick(softmax, softmax, reference=exact)
    assert (found.correct, found.word in ("SAME", "UNDECIDED")) == (True, True)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.journey
def test_who_keeps_results_or_memory_is_suspect():
    known, kept = {}, []

    def remembers(x):
        key = float(x.sum())
        if key not in known:
            known[key] = torch.stack([softmax(x) for _ in range(12)])[0]
        return known[key].clone()

    def leaks(x):
        kept.append(softmax(x))
        return kept[-1].clone()

    found = quick({"remembers": remembers, "leaks": leaks}, softmax)
    assert all(has_no_speedup(mine, "suspect") for mine in found.values())
    assert found["remembers"].why.startswith("the kernel caches results")
    assert found["leaks"].why.startswith("memory leak: every call keeps 1")


# --- inputs -----------------------------------------------------------------------------------------------------------


def positive_definite(seed):
    values = torch.randn(96, 96)
    return (values @ values.T + 96 * torch.eye(96),)


def test_inputs_stay_what_the_caller_promised():
    """No check may scale them: a matrix times -0.9 is not positive definite any more."""
    found = quick(torch.linalg.cholesky, lambda x: torch.linalg.cholesky_ex(x)[0], inputs=positive_definite)
    assert is_compared(found)


def test_who_keeps_results_by_an_index_is_suspect():
    """Tensors of whole numbers are written before calls, too."""
    known = {}

    def gathers(x, rows):
        key = rows.data_ptr(), rows._version
        if key not in known:
            known[key] = torch.stack([x[rows] for _ in range(12)])[0]
        return known[key].clone()

    def drawn(seed):
        return torch.randn(ROWS, COLS), torch.randint(0, ROWS, (4 * ROWS,))

    found = quick(gathers, lambda x, rows: x[rows], inputs=drawn)
    assert found.speedup is None, str(found)


def test_plain_tensors_are_drawn_anew_and_never_written_to():
    values, where = torch.full((ROWS, COLS), 3.0), torch.arange(ROWS).flip(0)
    seen = []

    def take(x, rows):
        seen.append((x.std().item(), torch.equal(rows, where)))
        return x[rows]

    found = quick(take, inputs=[values, where])
    assert DRAWN in found.notes
    assert torch.equal(values, torch.full((ROWS, COLS), 3.0))
    assert sum(0.9 < spread < 1.1 for spread, _ in seen) > len(seen) / 2, "N(0, 1), but for poisoned ones"
    assert sum(same for _, same in seen) > len(seen) / 2


def test_a_function_that_forgets_its_seed_is_noted_and_its_tensors_are_its_own():
    mine = torch.randn(ROWS, COLS)
    before = mine.clone()
    found = quick(softmax, softmax, lambda seed: (mine,), reference=softmax)
    assert CONSTANT in found.notes
    assert (found.correct, torch.equal(mine, before)) == (True, True)


def test_torchs_random_numbers_follow_the_seed_and_the_callers_are_left_alone():
    state = torch.get_rng_state()
    assert quick(softmax, reference=softmax).correct is True
    assert torch.equal(torch.get_rng_state(), state)


def test_layouts_in_memory_are_kept():
    layouts = set()

    def layout(x):
        layouts.add(x.stride())
        return x * 1

    quick(layout, inputs=lambda seed: (torch.randn(ROWS, 2 * COLS)[:, :COLS],))
    assert (2 * COLS, 1) in layouts


def test_modules_are_measured_without_gradients():
    layer = torch.nn.Linear(COLS, 32)
    found = quick(layer, layer, lambda seed: (torch.randn(8, COLS, requires_grad=True),))
    assert (found.name, found.word) == ("Linear", "correctness unknown")
    assert found.speedup


# --- what it says -----------------------------------------------------------------------------------------------------


@pytest.mark.thorough("a whole measurement for what it prints: `make test` has its figures")
def test_it_is_printed_with_n_and_interval():
    found = quick(four_times, softmax, reference=softmax, name="mine")
    text = str(replace(found, why=""))
    head, columns, mine, base, correct, mode, *notes = text.splitlines()
    assert is_interrupted(found) or re.match(
        rf"mine: {found.word}, \d+\.\d+x its baseline \(\d+\.\d+ to \d+\.\d+\)$", head
    ), head
    assert columns.split() == ["p50", "us", "interval", "n", "rounds"]
    assert (mine.split()[0], mine.split()[-1], base.split()[0], base.split()[-1]) == ("mine", "8", "baseline", "8")
    assert mine.index(" to ") > 0 and columns.index("rounds") == mine.rindex("8") == base.rindex("8")
    assert (correct, mode.startswith("  mode: cpu, margin ")) == ("  correct: yes", True)
    assert all(note.startswith("  note: ") for note in notes)


def test_what_is_wrong_is_printed_without_a_time():
    lines = str(quick(half_written, softmax, reference=softmax)).splitlines()
    assert lines[:2] == ["half_written: incorrect", "  correct: no"]
    assert lines[2].startswith("  why: ") and not re.search(r"\d us\b", "".join(lines))


def test_it_is_plain_data():
    found = quick(softmax, softmax).as_dict()
    assert json.loads(json.dumps(found))["baseline"]["n"] == found["baseline"]["n"] > 0
    assert set(found) >= {"word", "speedup", "low", "high", "p50_us", "n", "rounds", "correct", "why", "mode", "notes"}


# --- errors -----------------------------------------------------------------------------------------------------------

ONES, COUNT = torch.ones(4, 8), itertools.count()


@pytest.mark.parametrize(
    "asked, error, said",
    [
        ({"inputs": ONES}, TypeError, "inputs must be a tuple of tensors, .* not a Tensor"),
        ({"inputs": lambda seed: ONES}, TypeError, "not a Tensor"),
        ({"inputs": (ONES, 0.5)}, TypeError, r"inputs\[1\] is a float, not a tensor: bind it"),
        ({"inputs": ()}, ValueError, "at least one element"),
        ({"inputs": (torch.ones(0, 8),)}, ValueError, "at least one element"),
        ({"inputs": (ONES, ONES.to("meta"))}, ValueError, "on one device, not on cpu and meta"),
        ({"inputs": (ONES[:1].expand(4, 8),)}, ValueError, "is an expanded view"),
        (
            {"inputs": lambda seed: (torch.ones(1 + seed % 97),)},
            ValueError,
            "same shapes, dtypes and device for every seed",
        ),
        (
            {"inputs": lambda seed: (ONES * next(COUNT),)},
            ValueError,
            r"inputs\(seed\) is not deterministic: inputs\[0\] differs",
        ),
        ({"inputs": lambda seed: (ONES.to("meta"),)}, ValueError, "cpu and cuda, not meta"),
        ({"device": "mps"}, ValueError, "cpu and cuda, not mps"),
        ({"protocol": Protocol(name="fixed")}, ValueError, "in pairs"),
        ({"protocol": Protocol(verify_only=True)}, ValueError, "in pairs"),
        ({"candidates": lambda x: (x,)}, TypeError, "candidate returned a tuple, not a torch.Tensor or several"),
        ({"candidates": lambda x: (x, 3)}, TypeError, "candidate returned an int, not a torch.Tensor or several"),
        ({"candidates": lambda x: None}, TypeError, "returned a NoneType"),
        ({"candidates": {"wave": lambda x: x + 1j}}, TypeError, "wave returned 32 elements of torch.complex64"),
        ({"reference": "baseline"}, ValueError, 'reference="baseline" needs a baseline'),
        ({"reference": "eager"}, TypeError, 'reference must be a callable, or "baseline"'),
        ({"out": torch.empty_like}, TypeError, "for callables with a parameter named out: there is none"),
        ({"candidates": lambda x, out: out.copy_(x)}, TypeError, "writes into its argument out: say how that is made"),
        ({"candidates": {}}, TypeError, "takes a callable"),
        ({"candidates": 3}, TypeError, "takes a callable"),
        ({"candidates": {"baseline": softmax}}, ValueError, "may not be 'baseline'"),
        ({"candidates": {"x": softmax}, "name": "y"}, ValueError, "a mapping names its own"),
        ({"reference": lambda x: (x,)}, TypeError, "the reference returned a tuple"),
        ({"baseline": lambda x: x / 0}, ValueError, "the baseline's output is nowhere finite"),
        ({"candidates": lambda x: x.double(), "reference": lambda x: x.double()}, ValueError, "not of torch.float64"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_sentence(asked, error, said):
    with pytest.raises(error, match=said):
        quick(**{"candidates": softmax, "inputs": (ONES,)} | asked)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there():
    with pytest.raises(RuntimeError, match="the device cuda was asked for, but PyTorch finds no CUDA GPU here"):
        quick(softmax, device="cuda")


def test_what_a_callable_raises_goes_through_and_the_state_is_put_back():
    calls = 0

    def breaks(x):
        nonlocal calls
        calls += 1
        torch.set_default_dtype(torch.float64)
        if calls == 30:
            raise ArithmeticError("call 30")
        return softmax(x)

    with pytest.raises(ArithmeticError, match="call 30"):
        quick(breaks, softmax)
    assert torch.get_default_dtype() == torch.float32


# --- the package ------------------------------------------------------------------------------------------------------


def imported(code):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_kernels_imports_no_torch():
    assert not {"torch", "numpy", "pydantic", "kernels.inprocess.api"} & imported(
        "import kernels; kernels.HARNESS_VERSION"
    )
    with pytest.raises(ImportError):
        from kernels import nothing_of_that_name  # noqa: F401


# --- on a GPU ---------------------------------------------------------------------------------------------------------


def on_gpu(test):
    return pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")(test))


@on_gpu
def test_short_callables_are_replayed_as_graphs():
    found = quick(four_times, softmax, reference=softmax, device="cuda")
    assert (found.word, found.mode, found.correct) == ("SLOWER", "graph", True)


@on_gpu
def test_one_that_waits_for_the_device_is_launched_like_all_the_others():
    def waits(x):
        torch.cuda.synchronize()
        return softmax(x)

    found = quick({"waits": waits, "again": softmax}, softmax, reference=softmax, device="cuda")
    assert {mine.mode for mine in found.values()} == {"cold"}
    assert "waits synchronises with the device: its times include launch gaps" in found["again"].notes
