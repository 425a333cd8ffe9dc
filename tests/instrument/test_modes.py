"""Modes on a simulated GPU: which one is chosen, what each does, graphs, and arms that cannot be measured alike."""

import math
from collections import Counter
from types import SimpleNamespace

import pytest
from simulations import BASE, MS, NEVER, STEADY, US, bench_of, word_of
from simulator import SimulatedBench, SimulatedKernel

from kernels.analysis.blocks import Estimate, choose_mode
from kernels.analysis.statistics import MARGIN, half_width, margin_from, paired_speedup
from kernels.parent.drive import AA, Drive
from kernels.parent.engine import Engine, Timed, _note_waiting
from kernels.parent.estimate import estimate
from kernels.parent.groups import Group, uncapturable
from kernels.parent.groups import groups as make_groups
from kernels.parent.reading import Reading
from kernels.protocol import Protocol

# --- estimate and mode ------------------------------------------------------------------------------------------------


def test_an_estimate_sees_the_device_and_not_the_launches_in_front_of_it():
    bench = SimulatedBench({BASE: SimulatedKernel(8 * US, enqueue_ns=25 * US)}, noise=0)
    found = estimate(Drive(bench, [BASE], BASE, Protocol(), 1), cuda=True)[BASE]
    assert (found.call_ns, found.enqueue_ns, found.synchronises) == (8 * US, 25 * US, False)
    ungated = estimate(Drive(bench, [BASE], BASE, Protocol(), 1), cuda=False)[BASE]
    assert ungated.call_ns == 25 * US


def test_a_first_call_in_a_new_process_may_compile(monkeypatch):
    bench, limits = bench_of(), []
    ask = bench.call

    def call(do, limit_s=0.0, **arguments):
        limits.append(limit_s)
        return ask(do, limit_s, **arguments)

    monkeypatch.setattr(bench, "call", call)
    estimate(Drive(bench, [BASE], BASE, Protocol(compile_limit_s=1234), 1), cuda=False)
    assert limits[-1] == 1234


def test_an_arm_that_waits_for_the_device_is_known():
    bench = bench_of(other=SimulatedKernel(100 * US, synchronises=True))
    found = estimate(Drive(bench, [BASE, "other"], BASE, Protocol(), 1), cuda=True)
    assert [found[arm].synchronises for arm in (BASE, "other")] == [False, True]


@pytest.mark.parametrize(
    "fastest_us, asked, cuda, mode",
    [
        (49.9, "auto", True, "graph"),
        (50.0, "auto", True, "cold"),
        (5.0, "cold", True, "cold"),
        (500.0, "graph", True, "graph"),
        (5.0, "warm", True, "warm"),
        (5.0, "auto", False, "cpu"),
        (5.0, "graph", False, "cpu"),
    ],
)
def test_graphs_are_for_what_is_below_50_us(fastest_us, asked, cuda, mode):
    estimates = {"slow": Estimate(9 * MS, 0), "fast": Estimate(fastest_us * US, 0)}
    assert choose_mode(Protocol(mode=asked), estimates, cuda) == mode


def test_a_workload_below_50_us_replays_graphs_and_one_above_calls(measure):
    short, long = bench_of(base_ns=20 * US, other=30 * US), bench_of(base_ns=60 * US, other=90 * US)
    assert measure(short, **STEADY).mode == "graph"
    assert measure(long, **STEADY).mode == "cold"
    assert short.asked("replay") and short.asked("capture")
    assert long.asked("block") and not long.asked("replay")


def test_beside_graph_replays_there_are_single_calls_on_cold_inputs(measure):
    """For p90 and p99: a replay's time over its nodes is a mean."""
    bench = bench_of(base_ns=20 * US, other=30 * US, hopeless=90 * US)
    reading = measure(bench, **STEADY)
    steps = [what for what, _, _ in bench.log]
    assert "block" not in steps[: len(steps) - steps[::-1].index("replay")], "after all rounds"
    assert {arm: len(ticks) for arm, ticks in reading.cold.items()} == {BASE: 100, "other": 100}
    assert min(reading.cold["other"]) == pytest.approx(30 * US, rel=0.01)
    assert all(asked["gate_ns"] for asked in bench.asked("block"))
    assert not measure(bench_of(other=100 * US), **STEADY).cold, "in the mode cold, the samples are that already"


def test_a_host_too_slow_to_queue_gives_no_cold_pass(measure):
    odd = SimulatedKernel(30 * US, enqueue_ns=20 * MS)
    reading = measure(bench_of(base_ns=20 * US, odd=odd), mode="graph", **STEADY)
    assert BASE in reading.cold and "odd" not in reading.cold


def test_e2e_is_host_time_with_dispatch(measure):
    bench = bench_of(base_ns=20 * US, other=SimulatedKernel(20 * US, enqueue_ns=20 * US), weather={"noise": 0})
    reading = measure(bench, mode="e2e", **STEADY)
    assert reading.mode == "e2e" and not bench.asked("capture")
    assert reading.medians(BASE)[0] == pytest.approx(23 * US)
    assert reading.medians("other")[0] == pytest.approx(40 * US)
    assert word_of(reading) == "SLOWER"


@pytest.mark.parametrize("base_us", (20, 200, 40_000))
def test_sustained_runs_for_a_second_and_more_after_a_lead(measure, base_us):
    bench = bench_of(base_ns=base_us * US, other=base_us * US * 1.1, weather={"noise": 0})
    reading = measure(bench, mode="sustained", **STEADY)
    for asked in bench.asked("sustained"):
        each_ns = asked["calls"] * bench.kernels[asked["arm"]].true_ns
        assert asked["lead"] * each_ns >= 0.25e9
        assert 1e9 <= asked["chunks"] * each_ns < 1e9 + 2 * each_ns
    assert bool(bench.asked("capture")) == (base_us < 50), "launching such calls one by one would take longer"
    assert len(reading.orders) == 8
    assert word_of(reading) == "SLOWER"
    last = bench.asked("sustained")[-1]
    calls = last["calls"] * (last["lead"] + last["chunks"])
    assert reading.sights[last["graph"]] == math.ceil(calls / reading.sets), "calls that met the same values"


@pytest.mark.parametrize("mode, rounds", [("sustained", 8), ("cold", 1)])
def test_a_time_limit_of_seconds_leaves_sustained_the_rounds_of_a_verdict(measure, mode, rounds):
    reading = measure(bench_of(other=200 * US), mode=mode, **STEADY | {"budget_s": 1e-9})
    assert len(reading.orders) == rounds
    assert any("time budget" in note for note in reading.notes)


# --- graphs -----------------------------------------------------------------------------------------------------------


def test_every_round_has_graphs_of_its_own_captured_in_its_order(measure):
    bench = bench_of(base_ns=20 * US, other=25 * US, hopeless=90 * US)
    reading = measure(bench, **NEVER)
    rounds_seen: list[list[str]] = [[]]
    for what, asked, _ in bench.log:
        if what in ("drop_graphs", "capture"):
            rounds_seen[-1].append(asked.get("graph", what))
        elif what == "replay" and rounds_seen[-1]:
            rounds_seen.append([])
        elif what == "block":
            break  # single calls, after all rounds
    assert rounds_seen[-2::-1][:10] == [["drop_graphs", *order] for order in reading.orders[::-1][:10]]
    captured = Counter(asked["graph"] for asked in bench.asked("capture"))
    assert captured == {BASE: 121, BASE + AA: 121, "other": 121, "hopeless": 9}, (
        "one for the warm-up, one for each round"
    )


def test_the_baseline_against_itself_shows_what_captures_do(measure):
    """With one graph for both, its A/A would be blind to a bias that the other arms have."""
    bench = bench_of(base_ns=20 * US, other=20 * US, weather={"capture_bias": 0.05, "noise": 0.0001})
    reading = measure(bench, min_rounds=5, max_rounds=5)
    aa = paired_speedup(reading.medians(BASE), reading.medians(BASE + AA))
    assert half_width(*aa[1:]) > 0.02
    assert margin_from(aa) > 2 * MARGIN


@pytest.mark.parametrize("bias", (0.005, 0.015))
def test_what_a_capture_fixes_is_never_a_difference_of_kernels(measure, bias):
    """Seen on an H200: captures of the same 9 us calls differ by 2%, and rounds of one capture by 0.1%."""
    shown, covered = [], 0
    for seed in range(60):
        bench = bench_of(seed, base_ns=9 * US, other=9 * US, weather={"capture_bias": bias, "noise": 0.001})
        reading = measure(bench, seed=seed)
        ratio, low, high = paired_speedup(reading.medians(BASE), reading.medians("other"))
        shown.append(ratio - 1)
        covered += low <= 1 <= high
        assert word_of(reading) in ("SAME", "UNDECIDED")
    assert covered >= 55, "the interval knows of it"
    assert max(map(abs, shown)) < bias


def test_a_replay_covers_all_input_sets_and_a_tick_is_one_call(measure):
    bench = bench_of(base_ns=20 * US, other=25 * US, weather={"noise": 0, "sets": 40})
    reading = measure(bench, **STEADY)
    assert reading.sets == 40
    assert {asked["replays"] for asked in bench.asked("replay") if asked["arm"] == BASE} == {1}
    assert reading.medians(BASE)[0] == pytest.approx(20 * US)


# --- arms that cannot be measured alike -------------------------------------------------------------------------------


def groups(bench, mode="auto", cuda=True):
    """[(name, mode, arms)]"""
    drive = Drive(bench, list(bench.kernels), BASE, Protocol(mode=mode), 1)
    estimates = estimate(drive, cuda)
    found = make_groups(drive, estimates, cuda, uncapturable(drive, estimates, cuda))
    assert all(group.graphs == (group.mode == "graph") for group in found)
    return [(group.name, group.mode, list(group.arms)) for group in found]


SYNCHRONISES = SimulatedKernel(20 * US, synchronises=True)
NOT_CAPTURED = SimulatedKernel(20 * US, capturable=False)


def test_arms_that_can_all_be_captured_are_one_group():
    assert groups(bench_of(base_ns=20 * US, other=30 * US)) == [("main", "graph", [BASE, "other"])]


@pytest.mark.parametrize("odd", (SYNCHRONISES, NOT_CAPTURED), ids=("synchronises", "not captured"))
def test_an_arm_that_cannot_be_captured_gets_a_group_and_a_baseline_of_its_own(odd):
    found = groups(bench_of(base_ns=20 * US, other=30 * US, odd=odd))
    assert found == [("main", "graph", [BASE, "other"]), ("eager-launch", "cold", [BASE, "odd"])]


def test_graphs_made_to_see_who_can_be_captured_are_gone_before_anything_is_timed():
    bench = bench_of(base_ns=20 * US, other=30 * US)
    groups(bench)
    assert bench.asked("drop_graphs")
    assert not bench.bias


def test_alone_with_the_baseline_it_is_the_only_group():
    assert groups(bench_of(base_ns=20 * US, odd=NOT_CAPTURED)) == [("eager-launch", "cold", [BASE, "odd"])]


def test_if_the_baseline_cannot_be_captured_nobody_is():
    bench = SimulatedBench({BASE: NOT_CAPTURED, "other": SimulatedKernel(20 * US)})
    assert groups(bench) == [("main", "cold", [BASE, "other"])]


def test_long_kernels_and_cpus_capture_nothing():
    bench = bench_of(base_ns=200 * US, odd=SimulatedKernel(300 * US, capturable=False))
    assert groups(bench) == [("main", "cold", [BASE, "odd"])]
    assert groups(bench, cuda=False) == [("main", "cpu", [BASE, "odd"])]
    assert not bench.asked("capture")


def test_a_kernel_that_waits_for_the_device_says_so():
    bench = bench_of(base_ns=20 * US, odd=SimulatedKernel(30 * US, synchronises=True))
    estimates = estimate(Drive(bench, list(bench.kernels), BASE, Protocol(), 1), True)
    main, apart = Reading("graph", {}), Reading("cold", {})
    _note_waiting(Timed(Group("main", "graph", (BASE, "other"), graphs=True), [], main), estimates)
    _note_waiting(Timed(Group("eager-launch", "cold", (BASE, "odd")), [], apart), estimates)
    said = "odd waits for the device itself, so it is launched call by call, and so is its baseline"
    assert (main.notes, apart.notes) == ([], [said])


def test_a_kernel_that_cannot_be_captured_says_why():
    bench = bench_of(base_ns=20 * US, odd=NOT_CAPTURED)
    drive = Drive(bench, list(bench.kernels), BASE, Protocol(), 1)
    why = uncapturable(drive, estimate(drive, True), True)
    assert why == {"odd": "operation not permitted when stream is capturing"}
    graphs, calls = Reading("graph", {}), Reading("cold", {})
    for reading, group in (
        (graphs, Group("main", "graph", (BASE, "other"), graphs=True)),
        (calls, Group("eager-launch", "cold", (BASE, "odd"))),
    ):
        Engine._note_uncaptured(SimpleNamespace(uncaptured=why), Timed(group, [], reading))
    assert graphs.notes == []
    (note,) = calls.notes
    assert note == f"odd is launched call by call, because it cannot be captured as a CUDA graph: {why['odd']}"
