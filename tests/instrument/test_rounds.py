"""The protocols on a simulated GPU: who runs when and how often, when it is enough, and that the words come out true."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from simulations import BASE, MS, NEVER, STEADY, US, bench_of, word_of
from simulator import SimulatedBench, SimulatedKernel

from kernels.analysis.blocks import Estimate, calls_for, gate_for
from kernels.analysis.statistics import MARGIN, MIN_ROUNDS, WIDEST_MARGIN, margin_from, paired_speedup
from kernels.parent import rounds
from kernels.parent.drive import AA, Drive, kernel_of
from kernels.parent.estimate import estimate
from kernels.parent.fixed import fixed
from kernels.parent.reading import Reading
from kernels.parent.rounds import Paired
from kernels.protocol import Protocol

# --- order ------------------------------------------------------------------------------------------------------------


def test_order_is_balanced_over_each_pair_of_rounds(measure):
    reading = measure(bench_of(one=100 * US, two=300 * US, three=150 * US), **NEVER)
    for first, second in zip(reading.orders[::2], reading.orders[1::2], strict=True):
        assert second == first[::-1]
        assert sorted(first) == sorted([BASE, BASE + AA, "one", "two", "three"])
    assert len({tuple(order) for order in reading.orders[::2]}) > 20, "random from pair to pair"


def test_every_arm_comes_first_and_last_about_equally_often(measure):
    reading = measure(bench_of(one=200 * US, two=200 * US), **NEVER)
    first, last = (Counter(order[at] for order in reading.orders) for at in (0, -1))
    assert set(first) == set(last) == {BASE, BASE + AA, "one", "two"}
    assert first == last


def test_a_round_is_one_block_of_each_arm_on_values_of_its_own(measure):
    bench = bench_of(other=100 * US)
    reading = measure(bench, **STEADY)
    assert {arm: len(blocks) for arm, blocks in reading.blocks.items()} == {BASE: 20, BASE + AA: 20, "other": 20}
    blocks = bench.asked("block")[-20 * 3 :]
    assert [asked["arm"] for asked in blocks] == [kernel_of(arm) for order in reading.orders for arm in order]
    assert all(len(asked["seeds"]) == asked["calls"] for asked in blocks), "one for each call"
    assert len({seed for asked in blocks for seed in asked["seeds"]}) == sum(asked["calls"] for asked in blocks)
    assert all(asked["early"] for asked in blocks), "the time of a copy would tell which blocks are checked"


@pytest.mark.parametrize("mode, spots", [("cold", 8 + 26), ("graph", 15), ("sustained", 0), ("e2e", 0)])
def test_some_rounds_have_blocks_whose_inputs_come_last(measure, mode, spots):
    bench = bench_of(other=100 * US)
    reading = measure(bench, mode=mode, warmup_s=0, **NEVER)
    expected = dict.fromkeys([BASE, "other"], spots) if spots else {}
    assert {arm: len(found) for arm, found in reading.spots.items()} == expected
    assert Counter(asked["arm"] for what, asked, _ in bench.spots if what != "keep") == expected


@pytest.mark.parametrize("mode, cuda", [("cold", True), ("graph", True), ("auto", False)])
def test_outputs_of_blocks_whose_inputs_come_last_are_checked(measure, mode, cuda):
    """On a CPU the first one, whose time is compared; on a GPU any one of a half of them, chosen by chance."""
    bench = bench_of(other=100 * US)
    measure(bench, mode=mode, cuda=cuda, warmup_s=0, **NEVER)
    spots, kept = [asked for what, asked, _ in bench.spots if what != "keep"], bench.kept_of_spots()
    if not cuda:
        assert [asked["position"] for asked in kept] == [0] * len(spots)
        assert not any(asked["early"] for asked in spots), "chance would copy another one"
        return
    assert {asked["arm"] for asked in kept} == {BASE, "other"} and len(spots) / 4 < len(kept) < len(spots)
    assert len({asked["position"] for asked in kept}) > 5


def test_blocks_whose_inputs_come_last_take_nothing_from_the_budget(measure):
    bench = bench_of(base_ns=10 * MS, one=10 * MS, two=10 * MS)
    reading = measure(bench, budget_s=1.0, warmup_s=0.0, **NEVER)
    assert len(bench.spots) - len(bench.kept_of_spots()) >= 12 and 8 < len(reading.orders) < 14, (
        "a round takes 0.2 s, and 2 s are there"
    )


def test_no_call_of_a_block_meets_values_twice(measure):
    """Where memory has room for fewer sets than a block has calls, there are fewer calls."""
    for sets, mode in ((7, "cold"), (7, "graph"), (100, "cold")):
        bench = bench_of(base_ns=40 * US, other=45 * US, weather={"sets": sets})
        reading = measure(bench, mode=mode, **STEADY)
        assert reading.sets == min(sets, 50)
        assert {asked["calls"] for asked in bench.asked("block")} <= set(range(reading.sets + 1))
        assert {asked["replays"] for asked in bench.asked("replay")} <= {1}


def test_a_block_that_is_repeated_has_new_values(measure):
    bench = bench_of(other=SimulatedKernel(100 * US, stalls={4: 100 * MS}))
    measure(bench, **STEADY)
    steps = [(asked["arm"], asked.get("seeds", []), reply) for what, asked, reply in bench.log if what == "block"]
    late = next(i for i, (_, _, reply) in enumerate(steps) if not reply.gated)
    (arm, before, _), (again, new, _) = steps[late : late + 2]
    assert arm == again == "other" and new and not set(before) & set(new)


def test_the_baseline_runs_against_itself(measure):
    reading = measure(bench_of(other=100 * US), **STEADY)
    aa = paired_speedup(reading.medians(BASE), reading.medians(BASE + AA))
    assert aa[0] == pytest.approx(1, abs=0.003)
    assert margin_from(aa) == MARGIN
    assert reading.blocks[BASE] != reading.blocks[BASE + AA]


def test_the_same_seed_gives_the_same_orders_and_another_seed_others(measure):
    def orders(seed):
        return measure(bench_of(one=100 * US, two=150 * US), seed=seed, **STEADY).orders

    assert orders(1) == orders(1) != orders(2)


def test_input_sets_get_seeds_that_are_all_different(measure):
    bench = bench_of(other=100 * US)
    measure(bench, **STEADY)
    seeds = [seed for asked in bench.asked("prepare") for seed in asked["seeds"]]
    seeds += [seed for asked in bench.asked("block") for seed in asked.get("seeds", [])]
    seeds += [asked["seed"] for asked in bench.asked("keep")]
    assert len(seeds) == len(set(seeds)) > 20
    assert max(seeds) >= 2**62, "as wide as PyTorch's generators"


# --- heat -------------------------------------------------------------------------------------------------------------


def slowed_in(*rounds_):
    """A device that says, after these rounds, counted from 1, that heat has slowed it down meanwhile."""
    asked = iter(range(10**6))
    return lambda: next(asked) in rounds_


def hot(bench, *when, **plan):
    drive = Drive(bench, list(bench.kernels), BASE, Protocol(**STEADY | plan), 1, slowed=slowed_in(*when))
    estimates = estimate(drive, cuda=True)
    bench.log.clear()
    return Paired(drive, "cold", estimates, cuda=True).measure()


def test_rounds_slowed_down_by_heat_are_measured_again():
    bench = bench_of(other=100 * US)
    reading = hot(bench, 3, 4, 9, warmup_s=0)
    assert reading.repeated == 3
    assert len(reading.orders) == len(reading.blocks["other"]) == 20
    assert len(bench.asked("block")) == 2 + 23 * 3, "a warm-up of each kernel, and all rounds"
    assert any("3 rounds were measured again" in note for note in reading.notes)
    for first, second in zip(reading.orders[::2], reading.orders[1::2], strict=True):
        assert second == first[::-1], "the order stays balanced"


def test_a_device_that_never_cools_down_ends_all_the_same():
    reading = hot(bench_of(other=100 * US), *range(1, 10**5), warmup_s=0, max_rounds=20)
    assert len(reading.orders) == 20
    assert reading.repeated == 20


def test_a_cpu_has_no_gates_and_no_flush(measure):
    bench = bench_of(other=100 * US, weather={"covered": False})
    reading = measure(bench, cuda=False, **STEADY)
    assert (reading.mode, reading.flushed) == ("cpu", False)
    assert {(asked["gate_ns"], asked["flush"]) for asked in bench.asked("block")} == {(0, False)}


def test_a_cpu_is_not_rested_and_long_calls_have_one_before_them_too(measure):
    bench = bench_of(base_ns=30 * MS, other=40 * MS)
    measure(bench, cuda=False, **STEADY)
    timed = [asked for asked in bench.asked("block") if "rest_ns" in asked]
    assert {(asked["calls"], asked["rest_ns"], asked["untimed"]) for asked in timed} == {(4, 0, True)}


def test_the_cache_is_flushed_only_where_rotation_does_not_cover_it(measure):
    for covered, mode, flushed in ((True, "cold", False), (False, "cold", True), (False, "warm", False)):
        bench = bench_of(other=100 * US, weather={"covered": covered})
        reading = measure(bench, mode=mode, **STEADY)
        assert reading.flushed == flushed
        assert {asked["flush"] for asked in bench.asked("block")} == {flushed}
    assert bench.asked("prepare")[-1]["sets"] == 1, "warm: one buffer"


# --- blocks and gates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call_us", (51, 100, 700, 3_000, 80_000))
@pytest.mark.parametrize("enqueue_us", (1, 20, 90, 400))
def test_a_block_has_up_to_50_calls_and_its_gate_at_most_10_ms(measure, call_us, enqueue_us):
    bench = SimulatedBench(
        {BASE: SimulatedKernel(call_us * US, enqueue_us * US), "other": SimulatedKernel(1.2 * call_us * US)}
    )
    reading = measure(bench, mode="cold", **STEADY)
    for asked in bench.asked("block"):
        assert (1 if call_us == 80_000 else 4) <= asked["calls"] <= 50
        assert 0 < asked["gate_ns"] <= 10 * MS
        if asked["arm"] == BASE:
            assert asked["gate_ns"] >= 1.49 * asked["calls"] * enqueue_us * US
    assert all(got.gated for what, _, got in bench.log if what == "block")
    length_ms = reading.calls["other"] * 1.2 * call_us * US / MS
    assert reading.calls["other"] in (4, 50) or call_us == 80_000 or 1.7 < length_ms < 2.3, "about 2 ms"


def test_calls_and_gates_at_their_edges():
    plan = Protocol()
    assert calls_for(plan, Estimate(2 * MS / 50, 0), cuda=True) == 50
    assert calls_for(plan, Estimate(1 * US, 0), cuda=True) == 50
    assert calls_for(plan, Estimate(2 * MS / 20, 0), cuda=True) == 20
    long = {3: 4, 6.2: 4, 6.3: 3, 12.5: 2, 12.6: 1, 900: 1}
    assert {ms: calls_for(plan, Estimate(ms * MS, 0), cuda=True) for ms in long} == long
    assert {calls_for(plan, Estimate(ms * MS, 0), cuda=False) for ms in long} == {4}
    assert calls_for(plan, Estimate(2 * MS / 50, 400 * US), cuda=True) == 16, "16 x 0.4 ms x 1.5 is 9.6 ms"
    assert calls_for(plan, Estimate(2 * MS / 50, 400 * US), cuda=False) == 50
    assert calls_for(plan, Estimate(2 * MS / 50, 60 * MS), cuda=True) == 1, "no gate is long enough, but it is measured"
    assert gate_for(10, 100 * US) == 1.5 * MS
    assert gate_for(50, 400 * US) == 10 * MS
    assert calls_for(Protocol(block_ms=0.5), Estimate(50 * US, 0), cuda=False) == 10


def test_a_block_that_the_host_queued_too_slowly_is_repeated(measure):
    """Its 5th block takes the host ten times as long as thought: launch gaps are in it, so it does not count."""
    slow_once = SimulatedKernel(10 * US, enqueue_ns=3 * US, stalls={5: 30 * US})
    bench = SimulatedBench({BASE: SimulatedKernel(10 * US), "other": slow_once}, noise=0)
    reading = measure(bench, mode="cold", warmup_s=0, **STEADY)
    of_other = [(asked, got) for what, asked, got in bench.log if what == "block" and asked["arm"] == "other"]
    missed = [number for number, (_, got) in enumerate(of_other) if not got.gated]
    assert len(missed) == 1
    (before, spoilt), (after, _) = of_other[missed[0]], of_other[missed[0] + 1]
    assert min(spoilt.ticks_ns) == 30 * US
    assert after["gate_ns"] > 5 * before["gate_ns"], "the next gate is as long as was needed"
    assert reading.blocks["other"] == [[10 * US] * 50] * 20, "no gap is in what is kept"
    assert reading.notes == []


def test_calls_are_lowered_where_the_longest_gate_does_not_cover_them(measure):
    """A host that needs 0.4 ms a launch from the 3rd block on: 50 calls would need a gate of 30 ms."""
    bench = bench_of(base_ns=20 * US, other=SimulatedKernel(20 * US, stalls=dict.fromkeys(range(3, 999), 400 * US)))
    reading = measure(bench, mode="cold", **STEADY)
    assert (reading.calls[BASE], reading.calls["other"]) == (50, 16)
    assert max(max(ticks) for ticks in reading.blocks["other"]) < 21 * US
    assert max(asked["gate_ns"] for asked in bench.asked("block")) <= 10 * MS
    assert reading.notes == []


def test_a_host_that_is_always_too_slow_is_said_so(measure):
    too_slow = SimulatedKernel(10 * MS, stalls=dict.fromkeys(range(3, 9999), 20 * MS))
    bench = bench_of(base_ns=15 * MS, other=too_slow)
    reading = measure(bench, **STEADY)
    assert [n for n in reading.notes if n.startswith("other: the host queued blocks too slowly")] == reading.notes
    assert len(reading.notes) == 1
    assert len(reading.blocks["other"]) == 20
    tries = len([asked for asked in bench.asked("block") if asked["arm"] == "other"])
    assert tries >= 3 * 20, "each block was tried three times"


def test_a_graph_whose_launch_the_gate_does_not_cover_gets_a_longer_gate(measure):
    bench = bench_of(base_ns=20 * US, other=SimulatedKernel(20 * US, stalls=dict.fromkeys(range(3, 999), 1 * MS)))
    reading = measure(bench, **STEADY)
    assert reading.mode == "graph"
    gates = [asked["gate_ns"] for asked in bench.asked("replay") if asked["arm"] == "other"]
    assert gates[0] == rounds.FIRST_GRAPH_GATE_NS < gates[-1] <= 10 * MS
    assert max(max(ticks) for ticks in reading.blocks["other"]) < 21 * US


# --- who leaves -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base_us, rounds", [(20, 40), (200, 20)])
def test_an_arm_837_times_slower_leaves_after_round_8_with_its_n(measure, base_us, rounds):
    bench = bench_of(base_ns=base_us * US, hopeless=837 * base_us * US, other=0.9 * base_us * US)
    reading = measure(bench, **STEADY)
    assert reading.left == {"hopeless": 8}
    assert {arm: len(blocks) for arm, blocks in reading.blocks.items()} == {
        BASE: rounds,
        BASE + AA: rounds,
        "hopeless": 8,
        "other": rounds,
    }
    assert all("hopeless" in order for order in reading.orders[:8])
    assert not any("hopeless" in order for order in reading.orders[8:])
    assert all(second == first[::-1] for first, second in list(pairwise(reading.orders))[6::2])
    base, slow = reading.medians(BASE)[:8], reading.medians("hopeless")
    assert paired_speedup(base, slow)[0] == pytest.approx(1 / 837, rel=0.01)
    assert bench.now_ns / 1e9 < 60, "not an hour"


def test_who_was_near_in_one_of_eight_rounds_stays():
    """On a noisy device the median alone would send away a kernel that may be the fastest."""
    bench = bench_of(base_ns=200 * US, other=500 * US)
    drive = Drive(bench, [BASE, "other"], BASE, Protocol(), 1)
    paired = Paired(drive, "cold", estimate(drive, True), True)
    far, near = [[500.0 * US]], [[210.0 * US]]
    paired.reading.blocks = {BASE: [[200.0 * US]] * 8, BASE + AA: [[200.0 * US]] * 8, "other": far * 7 + near}
    paired._drop_the_hopeless()
    assert paired.reading.left == {}
    paired.reading.blocks["other"] = far * 8
    paired._drop_the_hopeless()
    assert paired.reading.left == {"other": 8}


def test_an_arm_at_half_the_speed_stays(measure):
    reading = measure(bench_of(slow=1.9 * 200 * US, slower=2.1 * 200 * US), **STEADY)
    assert reading.left == {"slower": 8}


def test_the_baseline_never_leaves_itself(measure):
    reading = measure(bench_of(fast=10 * US), mode="cold", **STEADY)
    assert reading.left == {}
    assert len(reading.blocks[BASE + AA]) == 20


# --- when it is enough ------------------------------------------------------------------------------------------------


def looks(monkeypatch, width):
    """Rounds at which the width of the intervals was looked at; `width(rounds)` answers."""
    seen = []

    def widest(paired):
        seen.append(len(paired.reading.orders))
        return width(seen[-1]), BASE + AA

    monkeypatch.setattr(Paired, "widest", widest)
    return seen


def test_it_looks_at_rounds_20_30_and_so_on_only(measure, monkeypatch):
    seen = looks(monkeypatch, lambda _: 1.0)
    reading = measure(bench_of(other=150 * US))
    assert (seen[:5], len(reading.orders)) == ([20, 30, 40, 50, 60], 120)
    assert reading.notes == [f"precision not reached: half-width 100.00% of {BASE} against itself; goal 0.30%"]


@pytest.mark.parametrize("narrow_from, stops_at", [(1, 20), (20, 20), (21, 30), (31, 40), (115, 120)])
def test_it_stops_at_the_first_look_at_which_every_interval_is_narrow(measure, monkeypatch, narrow_from, stops_at):
    looks(monkeypatch, lambda number: 0.003 if number >= narrow_from else 0.00301)
    reading = measure(bench_of(other=150 * US))
    assert (len(reading.orders), reading.notes) == (stops_at, [])


def test_a_quiet_gpu_needs_20_rounds_and_a_noisy_one_120(measure):
    quiet = measure(bench_of(other=150 * US, weather={"noise": 0.0005}))
    assert (len(quiet.orders), quiet.notes) == (20, [])
    noisy = measure(bench_of(other=150 * US, weather={"noise": 0.2}))
    assert len(noisy.orders) == 120
    assert noisy.notes[0].startswith("precision not reached: half-width ")


def test_the_widest_interval_decides_and_that_of_an_arm_which_left_does_not(measure, monkeypatch):
    bench = bench_of(other=150 * US, gone=900 * US)
    widths = []
    original = Paired.widest
    monkeypatch.setattr(Paired, "widest", lambda paired: widths.append(original(paired)) or widths[-1])
    reading = measure(bench)
    _, low, high = paired_speedup(*reading.pairs(BASE, "other"))
    assert widths == [(rounds.half_width(low, high), "other")]
    assert reading.left == {"gone": 8}


def restless(bench, who):
    """The bench, with an arm whose blocks differ by 2%."""
    timed = bench._timed

    def moved(arm, *asked):
        block = timed(arm, *asked)
        factor = 1 + 0.02 * bench.rng.standard_normal() * (arm == who)
        return block.model_copy(update={"ticks_ns": [factor * tick for tick in block.ticks_ns]})

    bench._timed = moved
    return bench


def test_nobody_leaves_before_the_baseline_is_known_well_enough(measure, monkeypatch):
    """Where rounds stick to a level, few of them look precise by chance: 10% of words were false in a simulation."""
    width = Paired.width

    def known_after_40(paired, arm):
        return 1.0 if arm == BASE + AA and len(paired.reading.orders) < 40 else width(paired, arm)

    monkeypatch.setattr(Paired, "width", known_after_40)
    bench = bench_of(base_ns=150 * US, steady=150 * US, restless=150 * US, weather={"noise": 0.0005})
    reading = measure(restless(bench, "restless"))
    assert len(reading.blocks["steady"]) == 40 < len(reading.blocks["restless"])


def test_an_arm_that_is_known_well_enough_leaves_and_the_others_go_on(measure):
    bench = bench_of(base_ns=150 * US, steady=150 * US, restless=150 * US, weather={"noise": 0.0005})
    reading = measure(restless(bench, "restless"))
    counts = {arm: len(blocks) for arm, blocks in reading.blocks.items()}
    assert counts["steady"] == 20 < counts["restless"] == counts[BASE] == counts[BASE + AA]
    assert [len(side) for side in reading.pairs(BASE, "steady")] == [20, 20]
    assert reading.left == {}, "that is for arms that are far behind"


def test_both_arms_of_the_baseline_count():
    """The geometric mean of two arms varies less than one."""
    rng = np.random.default_rng(1)
    times = {
        arm: [[float(t)] for t in 1000 * np.exp(0.01 * rng.standard_normal(4000))] for arm in (BASE, BASE + AA, "other")
    }
    reading = Reading("cold", times)
    one, both = (
        np.std(np.log(base) - np.log(other))
        for base, other in [(reading.medians(BASE), reading.medians("other")), reading.pairs(BASE, "other")]
    )
    assert both / one == pytest.approx(math.sqrt(3 / 4), abs=0.02)
    assert reading.pairs(BASE, BASE + AA) == (reading.medians(BASE), reading.medians(BASE + AA)), "not against itself"
    alone = Reading("cold", {arm: blocks for arm, blocks in times.items() if not arm.endswith(AA)})
    assert alone.pairs(BASE, "other")[0] == reading.medians(BASE)


def test_the_time_budget_ends_it_between_looks_with_a_note(measure):
    """Two pairs of 1 s each; a round takes a bit more than 3 x 4 x 10 ms."""
    bench = bench_of(base_ns=10 * MS, one=10 * MS, two=10 * MS, weather={"noise": 0.1})
    reading = measure(bench, budget_s=1.0, warmup_s=0.0, **NEVER)
    count = len(reading.orders)
    assert 8 < count < 14
    assert reading.notes[0] == f"stopped at its time budget after {count} rounds"
    assert reading.notes[1].startswith("precision not reached: half-width ")
    assert all(len(blocks) == count for blocks in reading.blocks.values()), "a round is never cut in two"


def test_a_wide_protocol_goes_on_for_a_third_of_its_budget_while_nothing_could_be_decided(measure):
    def rounds_of(noise, precision):
        bench = bench_of(base_ns=10 * MS, other=10 * MS, weather={"noise": noise})
        reading = measure(bench, warmup_s=0.0, budget_s=4.0, precision=precision, min_rounds=120)
        margin = margin_from(paired_speedup(*reading.pairs(BASE, BASE + AA)))
        assert (margin > WIDEST_MARGIN) == (noise == 0.08)
        return len(reading.orders)

    wide, narrow = 0.01, 0.001
    assert rounds_of(0.01, wide) == rounds_of(0.01, narrow), "what can be decided is left alone"
    assert rounds_of(0.08, wide) / rounds_of(0.08, narrow) == pytest.approx(4 / 3, abs=0.1)


def test_a_budget_that_is_too_short_leaves_the_rounds_of_a_word(measure):
    """A round takes about 0.1 s: three of them fill the budget. With fewer than eight there would be no word."""
    bench = bench_of(base_ns=10 * MS, one=8 * MS, weather={"noise": 0.1})
    reading = measure(bench, budget_s=0.3, warmup_s=0.0, **NEVER)
    assert len(reading.orders) == MIN_ROUNDS == 8
    assert reading.notes[0] == "stopped at its time budget after 8 rounds"


def test_rounds_that_take_far_more_than_the_budget_end_it_before(measure):
    reading = measure(bench_of(base_ns=10 * MS, one=8 * MS), budget_s=0.001, warmup_s=0.0, **NEVER)
    assert len(reading.orders) == 1
    assert reading.notes[0] == "stopped at its time budget after 1 round"


def test_graphs_are_captured_forty_times_at_least_where_the_plan_lets_them(measure):
    assert len(measure(bench_of(base_ns=20 * US, other=15 * US)).orders) == 40
    short = measure(bench_of(base_ns=20 * US, other=15 * US, weather={"noise": 0.2}), min_rounds=10, max_rounds=20)
    assert len(short.orders) == 20
    assert short.notes[0].startswith("precision not reached: half-width ")


def test_a_fixed_number_of_rounds_is_no_failure_of_precision(measure):
    reading = measure(bench_of(other=150 * US, weather={"noise": 0.2}), min_rounds=5, max_rounds=5)
    assert (len(reading.orders), reading.notes) == (5, [])


@pytest.fixture
def warm_up_s(monkeypatch):
    """How long the warm-up lasts, in simulated seconds, by what the SM clock says at the end of each turn."""

    def session(clock, at_least):
        bench = bench_of(other=150 * US)
        monkeypatch.setattr(rounds, "time", bench.time)
        drive = Drive(bench, [BASE, "other"], BASE, Protocol(warmup_s=at_least), 1, sm_mhz=clock)
        estimates, begin = estimate(drive, True), bench.now_ns
        monkeypatch.setattr(Paired, "_rounds", lambda paired: None)
        Paired(drive, "cold", estimates, True).measure()
        return (bench.now_ns - begin) / 1e9

    return session


def test_warm_up_lasts_as_long_as_asked_and_until_the_clock_holds_still(warm_up_s):
    assert 0.5 <= warm_up_s(lambda: None, 0.5) < 0.51, "no clock to ask"
    assert 0.5 <= warm_up_s(lambda: 1980, 0.5) < 0.51
    assert warm_up_s(lambda: 1980, 0.0) < 0.02
    rising = iter(range(1000, 99_999, 25))
    until_1900 = warm_up_s(lambda: min(1900, next(rising)), 0.0)
    assert 25 <= until_1900 / warm_up_s(lambda: None, 0.0) <= 40, "25 MHz are 1% from 2500 on; it stops at 1900"


def test_a_clock_that_never_holds_still_is_waited_for_5_s(warm_up_s):
    hopping = iter(range(10**9))
    assert 5.0 <= warm_up_s(lambda: 1000 + 100 * (next(hopping) % 2), 0.5) < 5.01


# --- do the words come out true? --------------------------------------------------------------------------------------

STORM = {"drift_per_s": 0.05, "noise": 0.002, "hop": 0.02}
"""5% slower every second, noise with a memory, a clock that hops by 2%."""


def test_a_planted_3_percent_is_found_under_drift(measure):
    for seed in range(20):
        reading = measure(bench_of(seed, other=200 * US / 1.03, weather=STORM), seed=seed)
        assert word_of(reading) == "FASTER"
        ratio = paired_speedup(reading.medians(BASE), reading.medians("other"))[0]
        assert ratio == pytest.approx(1.03, abs=0.005)
        slower = measure(bench_of(seed, other=200 * US * 1.03, weather=STORM), seed=seed)
        assert word_of(slower) == "SLOWER"


def test_without_pairs_the_same_drift_makes_a_difference_of_nothing(monkeypatch):
    """What the protocol `fixed` would say of a kernel against itself, and why it says no word."""
    bench = bench_of(other=200 * US, weather=STORM)
    plan = Protocol(name="fixed", warmup=0, iters=5000)
    reading = fixed(Drive(bench, [BASE, "other"], BASE, plan, 1), cuda=True)
    assert word_of(reading) == "SLOWER"
    assert not reading.paired


@pytest.mark.parametrize("base_us", (20, 200))
def test_the_same_kernel_is_never_faster_or_slower(measure, base_us):
    for seed in range(40):
        weather = STORM | {"capture_bias": 0.003}
        reading = measure(bench_of(seed, base_ns=base_us * US, other=base_us * US, weather=weather), seed=seed)
        assert word_of(reading) in ("SAME", "UNDECIDED")
        assert word_of(reading, BASE + AA) in ("SAME", "UNDECIDED")


# --- outputs that are kept to be checked ------------------------------------------------------------------------------


def test_one_call_of_each_arm_in_every_five_rounds_is_kept(measure):
    bench = bench_of(other=100 * US)
    reading = measure(bench, warmup_s=0, **NEVER)
    prepared = max(at for at, (what, _, _) in enumerate(bench.log) if what == "prepare")
    blocks, kept = -2, []  # without a warm-up of each kernel
    for what, asked, _ in bench.log[prepared:]:
        blocks += what == "block"
        if what == "keep":
            kept.append(((blocks - 1) // 3, asked["arm"], asked["position"]))
    assert Counter(number // 5 for number, _, _ in kept) == dict.fromkeys(range(24), 3)
    assert Counter(arm for _, arm, _ in kept) == {BASE: 48, "other": 24}
    assert len({number % 5 for number, _, _ in kept}) > 2, "in no particular round"
    assert len({keep for _, _, keep in kept}) > 5, "at no particular position"
    assert len(reading.orders) == 120


# --- fixed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush, cuda, mode", [(False, True, "warm"), (True, True, "cold"), (True, False, "cpu")])
def test_fixed_measures_one_kernel_after_the_other_as_often_as_asked(flush, cuda, mode):
    bench = bench_of(other=100 * US)
    plan = Protocol(name="fixed", warmup=120, iters=170, flush_l2=flush)
    reading = fixed(Drive(bench, [BASE, "other"], BASE, plan, 1), cuda)
    assert (reading.mode, reading.paired, reading.flushed) == (mode, False, flush and cuda)
    assert {arm: len(blocks) for arm, blocks in reading.blocks.items()} == {BASE: 170, "other": 170}
    assert {len(block) for blocks in reading.blocks.values() for block in blocks} == {1}
    blocks = bench.asked("block")
    assert [asked["arm"] for asked in blocks] == [BASE] * 7 + ["other"] * 7
    assert [asked["calls"] for asked in blocks[:7]] == [50, 50, 20, 50, 50, 50, 20]
    assert [asked.get("flush", False) for asked in blocks[:7]] == [False] * 3 + [flush and cuda] * 4
    assert [asked["sets"] for asked in bench.asked("prepare")] == [1]
    kept = Counter(asked["arm"] for asked in bench.asked("keep"))
    assert kept == {BASE: 4, "other": 4}, "one in each burst of timed calls"
    assert "drift and difference cannot be separated" in reading.notes[0]


def test_fixed_without_warm_up_warms_nothing_up():
    bench = bench_of()
    fixed(Drive(bench, [BASE], BASE, Protocol(name="fixed", warmup=0, iters=4), 1), cuda=True)
    assert [asked["calls"] for asked in bench.asked("block")] == [4]
