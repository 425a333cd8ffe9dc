"""Kernels that cheat and kernels that have accidents, on the CPU: each is caught, for its own reason; honest ones pass."""

import pytest
from measuring import caught, measure
from selection import asked_for, telling

from kernels.analysis.suspicion import why_leaks, why_outside, why_probed, why_recognises, why_remembers
from kernels.contract.replies import Probed

SIZES = {"batch": 1, "heads": 2, "seq_len": 256, "head_dim": 64, "dtype": "float32"}
ONE_THREAD = {"OMP_NUM_THREADS": "1"}

HONEST = (
    "eager", "sdpa-math", "workspace", "says-a-line", "talkative", "compiles-late", "in-any-order", "strided",
    "in-inference-mode", "starts-a-helper", "without-gradients", "warns", "compiles-in-a-thread",
)  # fmt: skip
LATE_CHECK = "correct when checked alone, wrong when timed: largest error"
SO_LATE = "calls share one output"  # on a busy host it still writes while the next call is checked
CHANGED = "changed global state: "

WRONG = {
    "finished-by-a-thread": ("the output changed after the call returned", SO_LATE),
    "lazy": "not a torch.Tensor",
    "cached-by-pointer": "largest error",
    "cached-by-id": LATE_CHECK,
    "returned-again": "calls share one output",
    "never-written": "32768 elements of the output were never written",
    "half-written": "16384 elements of the output were never written",
    "changes-its-input": "the kernel changed its inputs",
    "one-buffer": "calls share one output",
    "cheaper-later": LATE_CHECK,
    "knows-the-check": LATE_CHECK,
    "not-a-number": "elements are NaN or Inf",
    "wrong-dtype": "returned torch.float16, not torch.float32",
    "half-precision": "largest error",
}
SUSPECT = {
    "cached-by-content": "the kernel caches results",
    "cached-by-version": "the kernel caches results",
    "cached-at-eighth-sight": "the kernel caches results",
    "patches-the-clock": CHANGED + "time.perf_counter_ns: replaced",
    "patches-the-baseline": CHANGED + "torch.nn.functional.scaled_dot_product_attention: replaced",
    "patches-an-operator": CHANGED + "torch.Tensor.__matmul__: replaced",
    "changes-the-threads": CHANGED + "number of threads: 8 instead of 1",
    "changes-the-dtype": CHANGED + "default dtype: torch.float64 instead of torch.float32",
    "changes-determinism": CHANGED + "deterministic mode: True instead of False",
    "changes-a-backend-flag": CHANGED + "float32 matmul precision: high instead of highest; flash attention: False",
    "leaves-autocast": CHANGED + "autocast on cpu: True instead of False",
    "replaces-an-implementation": CHANGED + "implementations of aten operators: aten/_softmax/CPU",
    "busy-thread": "left a thread busy",
    "busy-process": "left a process busy",
    "tampers-with-the-clock": CHANGED + "the clock.block: replaced",
    "rewrites-the-clock": CHANGED + "CpuClock.block: rewritten",
    "leaks": "memory leak: every call keeps",
}
DEADLY = {
    "endless": ("timed out", "compile: no answer within 6 s"),
    "segfault": ("crashed", "killed by SIGSEGV"),
    "forks-and-segfaults": ("crashed", "killed by SIGSEGV"),
    "leaves": ("crashed", "exited with status 1"),
    "forges-answers": ("suspect", "other code than the instrument wrote to the answer pipe"),
    "fails-in-call-7": ("failed", "call 7"),
}


WHY = "all of the zoo: `make test` measures one cheat or accident of each kind"
wrong = telling(
    WRONG, "finished-by-a-thread", "cached-by-id", "half-written", "changes-its-input", "one-buffer", "knows-the-check",
    "wrong-dtype", why=WHY,
)  # fmt: skip
suspect = telling(
    SUSPECT, "cached-by-content", "patches-the-clock", "changes-determinism", "replaces-an-implementation", "busy-thread",
    "tampers-with-the-clock", "leaks", why=WHY,
)  # fmt: skip
deadly = telling(DEADLY, "forks-and-segfaults", "forges-answers", "fails-in-call-7", why=WHY)  # more: a run of the site
honest = telling(HONEST, "eager", "workspace", "in-any-order", "strided", "says-a-line", "warns", why=WHY)


def measured(*kernels, **protocol):
    return measure("cpu", *kernels, sizes=SIZES, environment=ONE_THREAD, **protocol)


def those(request, *of):
    """The kernels which the tests of this run look at, in their order."""
    asked = asked_for(request, "kernel")
    return [kernel for kernels in of for kernel in kernels if kernel in asked]


@pytest.fixture(scope="module")
def cheats(request):
    return measured("eager", *those(request, WRONG, SUSPECT))


@pytest.fixture(scope="module")
def accidents(request):
    return measured("eager", *those(request, DEADLY), "busy-and-unsupported", "sdpa-math", compile_limit_s=6)


@pytest.fixture(scope="module")
def honest_ones(request):
    return measured(*those(request, HONEST))


@pytest.mark.parametrize("kernel", wrong)
def test_wrong(cheats, kernel):
    reasons = WRONG[kernel] if isinstance(WRONG[kernel], tuple) else (WRONG[kernel],)
    assert caught(cheats[kernel], "incorrect", *reasons)


@pytest.mark.thorough(WHY)
def test_work_in_pauses_is_no_work_on_the_inputs_of_the_call():
    """Apart from the others, whose process its thread would share."""
    found = measured("eager", "works-in-pauses")
    assert caught(found["works-in-pauses"], "incorrect", LATE_CHECK)
    assert found["eager"]["status"] == "ok"


@pytest.mark.parametrize("kernel", suspect)
def test_suspect(cheats, kernel):
    assert caught(cheats[kernel], "suspect", SUSPECT[kernel])


@pytest.mark.parametrize("kernel", deadly)
def test_accidents(accidents, kernel):
    assert caught(accidents[kernel], *DEADLY[kernel])


def test_the_honest_are_measured_beside_them(cheats, accidents):
    for found in (cheats, accidents):
        assert {found[name]["status"] for name in ("sdpa", "eager")} == {"ok"}
        assert found["eager"]["speedup"] is not None


def test_what_a_kernel_left_running_that_then_gave_up_is_not_the_next_ones(accidents):
    row = accidents["busy-and-unsupported"]
    assert (row["status"], row["why"]) == ("unsupported", "no such sizes")
    assert (accidents["sdpa-math"]["status"], accidents["sdpa-math"]["why"]) == ("ok", "")


@pytest.mark.parametrize("kernel", ["sdpa", *honest])
def test_honest(honest_ones, kernel):
    row = honest_ones[kernel]
    assert (row["status"], row["why"]) == ("ok", "")
    assert kernel != "in-any-order" or not row["facts"].deterministic


@pytest.mark.thorough(WHY)
def test_torch_compile_is_honest():
    """It begins processes and threads of its own."""
    found = measured("compiled")
    assert (found["compiled"]["status"], found["compiled"]["why"]) == ("ok", "")


def test_who_remembers():
    assert why_remembers([100.0, 101.0, 99.0], [200.0, 210.0, 190.0]).startswith(
        "the kernel caches results: 2.0 times faster"
    )
    assert not why_remembers([190.0, 205.0, 900.0], [200.0, 210.0, 190.0])
    assert not why_remembers([100.0, 101.0, 99.0], [118.0, 119.0, 117.0]), "not by much"


def test_a_busy_host_is_busy_for_calls_of_either_kind():
    """As it was for an honest kernel, the second call of two faster than the first, pair after pair."""
    assert not why_remembers([100.0, 101.0, 99.0, 400.0], [210.0, 98.0, 130.0, 200.0])


def test_who_keeps_results_and_takes_long_to_find_them_is_caught():
    """Extremes and median of seven on an H200: 1.3 times faster than the baseline by what it had kept."""
    seen, new = [88.7, 239.0, 257.0], [310.2, 426.2, 520.5]
    assert why_remembers(seen, new).startswith("the kernel caches results: 1.8 times faster")


def test_calls_on_tensors_that_nobody_has_written_may_be_a_little_faster():
    written = [20e3, 21e3, 19e3]
    assert "tensors not written since its last call" in why_recognises([6e3, 6.1e3, 5.9e3], written)
    assert not why_recognises([17e3, 19e3, 16.9e3], written)
    assert not why_recognises([3.1e3, 3.0e3, 3.2e3], [4.0e3, 3.9e3, 4.1e3]), (
        "of small calls, what writing leaves behind"
    )


def probed(count=7, **times):
    kinds = ("seen_ns", "new_ns", "untouched_ns", "written_ns", "again_ns", "fresh_ns")
    return Probed(busy=[], **{kind: count * [100.0] for kind in kinds} | times)


def test_what_comes_up_once_is_asked_again_and_judged_with_all_that_was_found():
    answers = [probed(seen_ns=7 * [50.0]), probed()]
    assert why_probed(lambda seeds, sights: answers.pop(0), lambda: 1, call_ns=100.0) == ""
    assert not answers
    guilty = probed(seen_ns=7 * [50.0])
    assert why_probed(lambda seeds, sights: guilty, lambda: 1, call_ns=100.0).startswith(
        "the kernel caches results: 2.0 times"
    )


@pytest.mark.parametrize(("call_ns", "calls", "sights"), [(10e3, 7, 10), (5e6, 7, 4), (50e6, 3, 3)])
def test_a_kernel_that_takes_long_is_asked_less(call_ns, calls, sights):
    asked = []

    def probe(seeds, sights):
        asked.append((len(seeds), sights))
        return probed(len(seeds))

    assert why_probed(probe, lambda: 1, call_ns) == ""
    assert asked == [(calls, sights)]


def test_who_leaks():
    grown = [(50_000_000, 10)] + 5 * [(100_000, 10)]
    assert why_leaks(grown) == "memory leak: every call keeps 10000 bytes"
    assert not why_leaks([*grown[:-1], (0, 10)])
    assert not why_leaks(grown[-4:])


def test_a_clock_and_the_parents_own():
    assert "the clock was tampered with" in why_outside(ticks_ns=60e6, wall_ns=50e6, around_ns=0)
    assert "work outside the timed region" in why_outside(ticks_ns=75e6, wall_ns=105e6, around_ns=5e6)
    assert not why_outside(ticks_ns=100e6, wall_ns=105e6, around_ns=5e6)
    assert not why_outside(ticks_ns=75e6, wall_ns=105e6, around_ns=25e6), "as much as around the baseline's calls"
