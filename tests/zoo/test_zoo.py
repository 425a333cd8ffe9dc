"""Kernels that cheat and kernels that have accidents, on the CPU: each is caught, for its own reason; honest ones pass."""

import os
import subprocess
import sys
import time

import pytest
from cases import CASES, ZOO, alone, on, together
from measuring import SIZES, measure, measure_alone
from selection import PATIENCE, asked_for, telling

from kernels.analysis.suspicion import (
    seeds_for,
    unevenness,
    why_ahead,
    why_always_uneven,
    why_between,
    why_leaks,
    why_outside,
    why_probed,
    why_recognises,
    why_remembers,
    why_uneven,
)
from kernels.contract.replies import Probed
from kernels.report.tables import failures

pytestmark = pytest.mark.journey
WHY = "all of the zoo: `make test` measures some cases of each kind"
CHOSEN = {
    "cheats": ("cached-by-content", "cached-by-id", "half-written", "changes-its-input", "one-buffer", "knows-the-check",
               "wrong-dtype", "finished-by-a-thread", "patches-the-clock", "changes-determinism", "busy-thread", "leaks",
               "tampers-with-the-clock", "strikes-its-override-off", "patches-the-baselines-module", "sets-an-alarm"),
    "deadly": ("forks-and-segfaults", "forges-answers", "fails-in-call-7", "busy-and-unsupported", "fails-after-patching"),
    "honest": ("workspace", "in-any-order", "strided", "says-a-line", "warns", "walks-frames", "uses-vmap"),
}  # fmt: skip
ALONE = ("works-ahead",)
GROUPS = together("cpu")
cheats, deadly, honest = (
    telling([case.name for case in GROUPS[word]], *CHOSEN[word], why=WHY) for word in ("cheats", "deadly", "honest")
)
TRIES, CANNOT_TELL, PAUSE_S = 3 * PATIENCE, "this machine was", 5
"""Readings where others keep the machine so busy that it cannot tell; how the reason begins; the wait for a quieter time."""
apart = telling([case.name for case in alone("cpu")], *ALONE, why=WHY)


def measured(*kernels, **protocol):
    return measure("cpu", *kernels, sizes=SIZES["cpu"], **protocol)


def those(request, word):
    """The kernels which the tests of this run look at, in their order."""
    asked = asked_for(request, "kernel")
    return [case.name for case in GROUPS[word] if case.name in asked]


@pytest.fixture(scope="module")
def cheating(request):
    return measured("eager", *those(request, "cheats"))


@pytest.fixture(scope="module")
def accidents(request):
    return measured("eager", *those(request, "deadly"), "sdpa-math", compile_limit_s=6)


@pytest.fixture(scope="module")
def honest_ones(request):
    return measured("eager", "sdpa-math", *those(request, "honest"))


def is_called_right(row, name):
    assert CASES[name].is_called("cpu", row), (row["status"], row["speedup"], row["why"])
    assert row["status"] == "ok" or failures([row["row"]]), "it counts as a failure of the run"
    return True


@pytest.mark.parametrize("kernel", cheats)
def test_cheats(cheating, kernel):
    assert is_called_right(cheating[kernel], kernel)


@pytest.mark.parametrize("kernel", deadly)
def test_accidents(accidents, kernel):
    row = accidents[kernel]
    assert CASES[kernel].is_called("cpu", row), (row["status"], row["why"])


@pytest.mark.parametrize("name", apart)
def test_apart_from_others(name):
    for number in range(TRIES):
        row = measure_alone(CASES[name], "cpu")
        if CASES[name].is_called("cpu", row) or not row["why"].startswith(CANNOT_TELL):
            break
        print(f"reading {number + 1}: {row['why']}")  # no word, but no finding either
        time.sleep(PAUSE_S)
    assert is_called_right(row, name)


@pytest.mark.thorough(WHY)
@pytest.mark.parametrize("name", [case.name for case in on("cpu", limits=True)])
def test_known_limits(name, request):
    """What a shared process cannot stop: it gets through, for the reason in its file. Where it does not, the limit is gone."""
    request.applymarker(pytest.mark.xfail(strict=True, reason=CASES[name].limit))
    assert is_called_right(measure_alone(CASES[name], "cpu"), name)


def test_the_honest_are_measured_beside_them(cheating, accidents):
    for found in (cheating, accidents):
        assert {name: found[name]["why"] for name in ("sdpa", "eager") if found[name]["status"] != "ok"} == {}
        assert found["eager"]["speedup"] is not None


def test_what_a_kernel_left_running_that_then_gave_up_is_not_the_next_ones(accidents):
    assert accidents["sdpa-math"]["status"] == "ok", accidents["sdpa-math"]["why"]


def test_what_a_kernel_changed_before_it_failed_is_not_the_next_ones():
    found = measured("fails-after-patching", "eager", "sdpa-math")
    assert CASES["fails-after-patching"].is_called("cpu", found["fails-after-patching"])
    assert {name: found[name]["why"] for name in ("sdpa", "eager", "sdpa-math") if found[name]["status"] != "ok"} == {}


@pytest.mark.parametrize("kernel", ["sdpa", "eager", *honest])
def test_honest(honest_ones, kernel):
    row = honest_ones[kernel]
    assert row["status"] == "ok", row["why"]
    assert kernel != "in-any-order" or not row["facts"].deterministic


NEIGHBOURS = ("forges-while-others-run", "keeps-frames", "sets-an-alarm")


@pytest.mark.thorough(WHY)
@pytest.mark.parametrize("beside", NEIGHBOURS)
def test_a_neighbour_is_not_blamed_for_what_another_does(beside):
    found = measured("eager", beside, min_rounds=10, max_rounds=10)
    assert {name: found[name]["why"] for name in ("sdpa", "eager") if found[name]["status"] != "ok"} == {}
    assert CASES[beside].is_called("cpu", found[beside])


@pytest.mark.thorough(WHY)
def test_a_compiled_neighbour_is_not_blamed_for_settings_of_the_compiler():
    """The compiler begins processes and threads of its own."""
    found = measured("changes-the-compiler", "compiled")
    assert found["compiled"]["status"] == "ok", found["compiled"]["why"]
    assert CASES["changes-the-compiler"].is_called("cpu", found["changes-the-compiler"])


@pytest.mark.thorough(WHY)
def test_the_zoo_is_measured_and_printed_by_a_command():
    settings = os.environ | {"CASES": "half-written,workspace", "DEVICE": "cpu"}
    done = subprocess.run([sys.executable, str(ZOO)], env=settings, cwd=ZOO.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sorted(line.split()[:3] for line in lines[1:3]) == [  # they come as they are measured
        ["half-written", "output", "incorrect"], ["workspace", "honest", "ok"],
    ]  # fmt: skip
    assert lines[-1] == "2 cases, 0 called wrong"


def test_every_case_says_what_it_must_be_called_and_is_short():
    for case in CASES.values():
        assert case.must_be and case.must_be.keys() <= {"cpu", "cuda"}, case.name
        path = ZOO / case.attacked / "attention" / f"{case.name.replace('-', '_')}.py"
        assert len(path.read_text().splitlines()) <= 40, f"{path}: a case is one idea"


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
    assert not why_recognises([35e3, 36e3, 35.5e3], [43e3, 44e3, 43.5e3], host_bytes=128 * 1024), "argmax on a CPU"
    assert why_recognises([6e3, 6.1e3, 5.9e3], [43e3, 44e3, 43.5e3], host_bytes=128 * 1024), "that is more than a read"
    assert not why_recognises([3.1e3, 3.0e3, 3.2e3], [4.0e3, 3.9e3, 4.1e3]), (
        "of small calls, what writing leaves behind"
    )


def test_work_after_the_end_of_calls_is_seen_and_a_busy_host_is_not_work():
    usual, interrupted, worked = (900.0, 2e6), (5e6, 2e6), (500e3, 2e6)
    assert why_between([usual] * 20) == why_between([]) == ""
    assert why_between([usual] * 12 + [interrupted] * 8) == "", "other programs"
    assert why_between([worked] * 9 + [usual]).startswith("works after the end of its calls: 500 us")
    assert why_between([(90e3, 2e6)] * 20) == "", "less than a twentieth"
    slow_clock = [(90e3, 2e6)] * 20
    assert why_between([(250e3, 2e6)] * 20, slow_clock) == "" != why_between([(400e3, 2e6)] * 20, slow_clock)


def probed(count=7, **times):
    kinds = ("seen_ns", "new_ns", "untouched_ns", "written_ns", "again_ns", "fresh_ns")
    return Probed(busy=[], **{kind: count * [100.0] for kind in kinds} | times)


def test_what_comes_up_once_is_asked_again_and_judged_with_all_that_was_found():
    answers = [probed(seen_ns=7 * [50.0]), probed()]
    assert why_probed(lambda seeds, sights, in_turn: answers.pop(0), lambda: 1, call_ns=100.0) == ""
    assert not answers
    guilty = probed(seen_ns=7 * [50.0])
    assert why_probed(lambda seeds, sights, in_turn: guilty, lambda: 1, call_ns=100.0).startswith(
        "the kernel caches results: 2.0 times"
    )


@pytest.mark.parametrize(
    ("kind", "call_ns", "sets", "calls", "sights", "in_turn"),
    [
        ("cpu", 10e3, 8, 7, 10, 8), ("cpu", 10e3, 2, 7, 10, 8), ("cpu", 4e6, 2, 7, 10, 8), ("cpu", 5e6, 2, 7, 8, 8),
        ("cpu", 13e6, 2, 7, 3, 2), ("cpu", 13e6, 1, 7, 3, 2), ("cpu", 13e6, 5, 7, 3, 5), ("cpu", 13e6, 40, 7, 3, 8),
        ("cpu", 50e6, 2, 3, 3, 2), ("cpu", 50e6, 8, 3, 3, 8), ("cpu", 150e6, 8, 1, 3, 2),
        ("cuda", 4e6, 2, 7, 10, 8), ("cuda", 13e6, 2, 3, 3, 2), ("cuda", 50e6, 8, 1, 3, 2),
    ],
)  # fmt: skip
def test_a_kernel_that_takes_long_is_asked_less_and_on_the_sets_that_it_was_timed_on(
    kind, call_ns, sets, calls, sights, in_turn
):
    asked = []

    def probe(seeds, sights, in_turn, one_buffer=False):
        assert one_buffer == (sets == 1)
        asked.append((len(seeds), sights, in_turn))
        return probed(len(seeds))

    assert why_probed(probe, lambda: 1, call_ns, sets, kind=kind) == ""
    assert asked == [(seeds_for(calls, in_turn), sights, in_turn)]


@pytest.mark.parametrize(("call_ns", "sights"), [(10e3, 900), (10e3, 4), (20e6, 30)])
def test_back_to_back_calls_are_tried_on_known_values_as_often_as_they_met_them(call_ns, sights):
    """A kernel that kept results from the eleventh sight on was never asked."""
    asked = []

    def probe(seeds, sights, in_turn):
        asked.append(sights)
        return probed()

    assert why_probed(probe, lambda: 1, call_ns, sets=2, sustained_sights=sights) == ""
    assert asked == [max(sights, 10 if call_ns == 10e3 else 3)]


def test_who_works_for_others():
    ahead, even = 7 * [unevenness([900.0, 1, 1, 1, 1, 1, 1, 1])], 7 * [unevenness([100.0] * 8)]
    assert why_uneven(ahead, even).startswith("some calls do the work of other calls")
    assert not why_uneven(even, even)
    assert not why_uneven(ahead, ahead), "a busy host interrupts the baseline, too"
    assert unevenness([0.0, 0.0, 0.0]) == 0, "a clock that did not move"


def test_who_works_for_others_does_so_in_nearly_every_block():
    """busy, base: as an honest kernel and its baseline were on a busy host."""
    busy, base = 2 * [1.22, 1.26, 1.35, 1.41, 1.42, 1.42, 1.45], 2 * [1.07, 1.10, 1.13, 1.14, 1.14, 1.15, 1.17]
    ahead = 2 * [1.45, 1.47, 1.5, 1.5, 1.51, 1.52, 1.6]
    assert why_uneven(busy, base) and not why_always_uneven(busy, base)
    assert why_always_uneven(ahead, base).startswith("some calls do the work of other calls")
    assert why_always_uneven([1.02, *ahead], base), "even in one of fifteen blocks"
    assert not why_always_uneven(ahead, ahead)


@pytest.mark.parametrize("isolated", ["0", "1"])
def test_make_zoo_refuses_a_name_that_is_no_case(isolated):
    env = os.environ | {"CASES": "sdpa-typo", "ISOLATED": isolated, "DEVICE": "cpu"}
    done = subprocess.run([sys.executable, str(ZOO)], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("There is no case sdpa-typo on cpu")


def test_who_leaks():
    grown = [(50_000_000, 10)] + 5 * [(100_000, 10)]
    assert why_leaks(grown) == "memory leak: every call keeps 10000 bytes"
    assert not why_leaks([*grown[:-1], (0, 10)])
    assert not why_leaks(grown[-4:])
    freed = [*[(100_000, 10)] * 40, (-3_900_000, 10), *[(100_000, 10)] * 3]
    assert why_leaks(freed) == "memory leak: every call keeps 10000 bytes", "it may free something now and then"
    assert not why_leaks([*[(100_000, 10)] * 40, *[(0, 10)] * 4, *[(100_000, 10)] * 4])


def test_a_clock_and_the_parents_own():
    assert "work outside the timed region" in why_outside(ticks_ns=50e6, wall_ns=105e6, around_ns=5e6)
    assert not why_outside(ticks_ns=90e6, wall_ns=130e6, around_ns=5e6), "a busy host"
    assert "the clock was tampered with" in why_outside(ticks_ns=60e6, wall_ns=50e6, around_ns=0)
    assert "work outside the timed region" in why_outside(ticks_ns=75e6, wall_ns=105e6, around_ns=5e6, kind="cuda")
    assert not why_outside(ticks_ns=100e6, wall_ns=105e6, around_ns=5e6)
    assert not why_outside(ticks_ns=75e6, wall_ns=105e6, around_ns=25e6, kind="cuda"), (
        "as much as around the baseline's calls"
    )


def test_who_works_before_its_calls():
    honest, slow = [100e3, 110e3, 120e3], [60e3, 70e3, 105e3]
    assert not why_ahead(honest, slow) and not why_ahead(honest, honest)
    found = why_ahead([20e3, 22e3, 30e3], honest)
    assert found == "works before its calls: 5.0 times faster if time passes between input writes and the call"
    assert not why_ahead([20e3, 22e3, 200e3], honest), "not in nearly all pairs"
    busy = [745, 1685, 164, 91, 131, 121, 117, 132, 157], [718, 661, 716, 692, 675, 667, 691, 750, 842]
    assert why_ahead(*([1e3 * us for us in times] for times in busy)), "two slow calls on a busy host hide nothing"
    assert not why_ahead([1305e3, 1356e3, 1718e3], [2357e3, 2132e3, 962e3]), "chance, with so few calls"
    few = [600e3, 700e3, 1600e3], [1400e3, 1500e3, 2400e3]
    assert not why_ahead(*few) and why_ahead(*(4 * times for times in few)), "seven of nine pairs"
    assert not why_ahead([90e3, 91e3, 92e3], honest), "below the limit"
    assert not why_ahead([20e3, 22e3, 30e3], honest, host_bytes=2**20), "reading what was just written takes longer"
