"""The bench itself, with the clock of CUDA devices, on the simulated GPU: every mode from estimate to recheck.

Kernels compute on the CPU, so that outputs can be checked, and take their time on the simulated GPU.
"""

import random
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from simulated_gpu import SimulatedGpu, SimulatedGraph, Work
from simulations import US

from kernels.analysis import blocks
from kernels.analysis.correctness import judge
from kernels.analysis.suspicion import seeds_for
from kernels.child import bench as benches
from kernels.child import calibrate
from kernels.child.arms import Arms
from kernels.child.clock import SPIN_HZ, CudaClock
from kernels.child.guard import Guard
from kernels.child.held import EarlyCopy
from kernels.parent import rounds
from kernels.parent.doubts import Doubts
from kernels.parent.drive import AA, Drive
from kernels.parent.engine import RetryInNewProcess
from kernels.parent.estimate import estimate
from kernels.parent.groups import groups
from kernels.protocol import Protocol

SIZES = {"batch": 1, "heads": 2, "seq_len": 64, "head_dim": 32}
TIMES = {"sdpa": 9 * US, "eager": 15 * US}


class Bench(benches.Bench):
    def __init__(self, gpu):
        self.kind, self.device, self.clock, self.gpu = "cuda", "cpu", CudaClock(gpu), gpu
        self.guard = Guard("cpu", self.clock)
        self.arms = Arms(self.kind, self.guard)
        self._forget()

    def _forget(self):
        super()._forget()
        copy = self.sets._copy

        def copied(*of):
            copy(*of)
            self.gpu.rewritten = True

        self.sets._copy = copied

    def _call(self, arm):
        run = super()._call(arm)

        def timed(index):
            out = run(index)
            self.gpu.launch(Work(TIMES[arm]))
            return out

        return timed

    def call(self, do, limit_s=0.0, **arguments):
        return getattr(self, do)(**arguments)


@pytest.fixture
def bench(monkeypatch):
    for name in ("memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: 0)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda *_: None)
    monkeypatch.setattr(rounds, "SUSTAINED_NS", 1e8)
    monkeypatch.setattr(rounds, "LEAD_NS", 2.5e7)
    bench = Bench(SimulatedGpu())
    bench.open({"operation": "attention", "dtype": "float32", "sizes": SIZES})
    for arm in TIMES:
        bench.load(arm)
        bench.compile(arm, seed=1)
    return bench


def measured(bench, mode, **plan):
    """(group, reading) of both kernels in a mode."""
    plan = Protocol(mode=mode, warmup_s=0, min_rounds=5, max_rounds=5, **plan)
    drive = Drive(bench, list(TIMES), "sdpa", plan, seed=1)
    estimates = estimate(drive, cuda=True)
    (group,) = groups(drive, estimates, cuda=True)
    return group, rounds.Paired(drive, group.mode, estimates, True, group.graphs).measure()


@pytest.mark.parametrize(
    "mode, chosen, graphs, dispatch",
    [
        ("auto", "graph", True, 0),
        ("cold", "cold", False, 0),
        ("warm", "warm", False, 0),
        ("sustained", "sustained", True, 0),
        ("e2e", "e2e", False, 4 * US),
    ],
)
def test_every_mode_shows_the_time_that_a_kernel_takes(bench, mode, chosen, graphs, dispatch):
    group, reading = measured(bench, mode)
    assert (group.mode, group.graphs) == (chosen, graphs)
    for arm in ("sdpa", "sdpa" + AA, "eager"):
        expected = TIMES[arm.removesuffix(AA)] + dispatch
        assert reading.medians(arm) == pytest.approx([expected] * len(reading.medians(arm)), rel=0.01)
    if mode == "auto":
        assert {arm: len(ticks) for arm, ticks in reading.cold.items()} == {"sdpa": 100, "eager": 100}
        assert reading.cold["eager"] == pytest.approx([TIMES["eager"]] * 100)
    if mode in ("auto", "cold", "warm"):
        assert all(clock == pytest.approx(1980, rel=0.02) for clocks in reading.sm_mhz.values() for clock in clocks)
        assert set(reading.sm_mhz) == {"sdpa", "sdpa" + AA, "eager"}


@pytest.mark.parametrize("mode", ("auto", "cold", "sustained", "e2e"))
def test_outputs_kept_in_any_mode_are_right(bench, mode):
    measured(bench, mode)
    bench.release()
    got = bench.recheck()
    assert {arm for arm, _ in got.readings} == set(TIMES)
    assert judge([reading for _, reading in got.readings], "float32")["correct"]
    assert got.changed_inputs == []
    assert bench.recheck().readings == []


@pytest.mark.parametrize("mode", ("cold", "graph"))
def test_work_that_is_queued_behind_the_last_event_shows(bench, monkeypatch, mode):
    """A thread may do it once all calls of a block are queued, before anybody chooses an output."""
    unfinished = []
    synchronize, replay, call = bench.gpu.synchronize, SimulatedGraph.replay, bench._call

    def left(out):
        unfinished.append((out, out.clone()))
        return out.zero_()

    def finish():
        while unfinished:
            out, right = unfinished.pop()
            out.copy_(right)
        synchronize()

    def replayed(graph):
        replay(graph)
        for out in graph.outputs:
            left(out)

    monkeypatch.setattr(bench.gpu, "synchronize", finish)
    monkeypatch.setattr(EarlyCopy, "ON_AVERAGE", 8)  # each call is copied
    for trap in ("_trap", "_trap_graph"):
        monkeypatch.setattr(bench, trap, lambda *of: None)
    bench.prepare(list(range(9)), sets=8)
    if mode == "graph":
        bench.capture("eager")
        monkeypatch.setattr(SimulatedGraph, "replay", replayed)
    else:
        monkeypatch.setattr(bench, "_call", lambda arm: lambda index: left(call(arm)(index)))
    correct = {}
    for early in (False, True):
        if mode == "graph":
            bench.replay("eager", replays=1, early=early, seeds=range(20, 28))
        else:
            bench.block("eager", calls=8, early=early, seeds=range(20, 28))
        bench.keep("eager", position=3, seed=99)
        ((_, reading),) = bench.recheck().readings
        correct[early] = judge([reading], "float32")["correct"]
    assert correct == {False: True, True: False}


def test_any_call_may_be_copied_early_and_none_tells_of_the_next():
    found, made = Counter(), Counter()
    for _ in range(2000):
        early = EarlyCopy(10, torch.zeros(1))
        for position in range(10):
            early.look(position, torch.tensor([float(position)]))
        made[early.made] += 1
        if early.found:
            position, out = early.found
            assert out.item() == position
            found[position] += 1
    assert 0.08 < made[0] / 2000 < 0.14, "of ten chances of 1/5 none comes true with probability 0.107"
    assert all(110 < found[position] < 250 for position in range(10)), "about 179 each"


def test_work_that_was_done_while_a_graph_was_captured_shows(bench, monkeypatch):
    """Replays that only copy what was computed then are wrong: inputs are newer than the capture."""
    record = SimulatedGpu.capture

    def capture(gpu, call, indices):
        graph, outputs = record(gpu, call, indices)
        graph.computed = [out.clone() for out in outputs]
        return graph, outputs

    def replay(graph):
        for work in graph.nodes:
            graph.gpu._run(work)
        for out, computed in zip(graph.outputs, graph.computed, strict=True):
            out.copy_(computed)

    monkeypatch.setattr(SimulatedGpu, "capture", capture)
    monkeypatch.setattr(SimulatedGraph, "replay", replay)
    measured(bench, "graph")
    bench.release()
    readings = bench.recheck().readings
    right = [judge([reading], "float32")["correct"] for _, reading in readings]
    assert right and not any(right), "every timed replay has values that are newer than its capture"


def test_a_graph_is_replayed_over_every_input_set_and_poisoned_before(bench):
    bench.prepare(list(range(9)), sets=8)
    bench.capture("sdpa")
    graph = bench.graphs["sdpa"]
    assert len(graph.outputs) == len(bench.sets) == 8
    graph.poison()
    assert all(bool(out.isnan().all()) for out in graph.outputs)
    bench.drop_graphs()
    assert not bench.graphs


def test_the_ceilings_of_a_device_are_timed_in_every_mode_that_has_an_empty_kernel(bench, monkeypatch):
    monkeypatch.setattr(calibrate, "_memory", lambda clock: [])
    monkeypatch.setattr(calibrate, "_matmul", lambda clock: [])
    empty = {figure.name: figure.blocks_ns for figure in calibrate.probe(bench.clock).figures}
    blocks = 2 * calibrate.ROUNDS["cuda"]
    assert {mode: [len(b) for b in found] for mode, found in empty.items()} == {
        "cold": [50] * blocks, "graph": [5] * blocks, "e2e": [50] * blocks,
    }  # fmt: skip
    assert empty["e2e"][0] == pytest.approx([4 * US] * 50)
    assert max(map(max, empty["graph"])) == 0


def test_each_round_times_every_ceiling_twice_and_every_second_round_backwards(bench, monkeypatch):
    """So that a busy second is in neighbours, where A/A sees it, and a slow drift is in all figures."""
    ran = []

    def figure(name):
        return calibrate.Figure(name, lambda: ran.append(name) or [1.0], {"bytes": 1})

    monkeypatch.setattr(calibrate, "_memory", lambda clock: [figure("copy"), figure("read")])
    monkeypatch.setattr(calibrate, "_matmul", lambda clock: [])
    monkeypatch.setattr(calibrate, "_empty", lambda clock: [])
    figures = calibrate.probe(bench.clock).figures
    assert ran[:8] == ["copy", "copy", "read", "read", "read", "read", "copy", "copy"]
    assert [len(f.blocks_ns) for f in figures] == [2 * calibrate.ROUNDS["cuda"]] * 2


def test_a_device_that_is_clearly_busy_is_given_up_early(bench, monkeypatch):
    ticks = iter([1.0, 2.0, 2.0, 1.0] * 100)
    monkeypatch.setattr(calibrate, "_memory", lambda _: [calibrate.Figure("copy", lambda: [next(ticks)], {"bytes": 1})])
    monkeypatch.setattr(calibrate, "_matmul", lambda clock: [])
    monkeypatch.setattr(calibrate, "_empty", lambda clock: [])
    (copy,) = calibrate.probe(bench.clock).figures
    assert len(copy.blocks_ns) == 2 * calibrate.LOOK < 2 * calibrate.ROUNDS["cuda"]


@pytest.mark.parametrize(("launch_us", "gate_ms"), [(4, 0.4), (200, 4)])
def test_a_probe_waits_only_as_long_as_the_host_needs_to_queue_its_calls(bench, launch_us, gate_ms):
    """Gates of 4 ms were most of its time. They are never longer: a call that waits for the device waits for its gate, too."""
    gates, spin = [], bench.gpu.spin
    bench.gpu.spin = lambda cycles: gates.append(cycles / SPIN_HZ * 1e3) or spin(cycles)
    bench.gpu.launch_ns = launch_us * US
    bench.prepare(seeds=list(range(8)), sets=8)
    found = bench.probe("eager", list(range(seeds_for(7))), 3, 8)
    gates = [ms for ms in gates if ms > 0.1]
    assert gates[0] == 4  # nobody knows the host yet
    assert max(gates[2:]) <= gate_ms
    assert len(gates) == 56
    slow = [ns for kind in ("seen_ns", "again_ns", "fresh_ns") for ns in getattr(found, kind) if ns > 16 * US]
    assert not slow


@pytest.fixture
def limited(bench, monkeypatch):
    """The same kernels, long, on a GPU that cannot work for more than 60 ms without a pause at its highest clock."""
    monkeypatch.setitem(TIMES, "sdpa", 20e6)
    monkeypatch.setitem(TIMES, "eager", 26e6)
    bench.gpu.tireless_ns = 60e6
    return bench


def test_a_rest_keeps_a_power_limit_out_of_long_calls(limited):
    _, reading = measured(limited, "cold")
    assert {arm: reading.medians(arm) for arm in TIMES} == {arm: pytest.approx([TIMES[arm]] * 5) for arm in TIMES}


@pytest.mark.parametrize("call_ms, ran", [(2.0, 5), (10.0, 2), (20.0, 1)])
def test_a_long_call_has_none_right_before_its_rest(limited, monkeypatch, call_ms, ran):
    """On an H200 at its power limit it costs the timed one several percent, after a pause twice as long as either."""
    monkeypatch.setitem(TIMES, "sdpa", call_ms * 1e6)
    _, reading = measured(limited, "cold")
    limited.clock.rest(10**9)
    asked = {"rest_ns": 0, "untimed": not blocks.is_long(call_ms * 1e6)}
    begin = limited.gpu.host
    limited.block("sdpa", calls=reading.calls["sdpa"], **asked)
    assert round((limited.gpu.host - begin) / (call_ms * 1e6)) == ran


def test_ceilings_are_those_of_a_rested_device(limited):
    """Else honest kernels, which are timed after a rest, would be above them."""
    block = calibrate._timer(limited.clock, lambda _: limited.gpu.launch(Work(2e6)))
    blocks_ns = [block() for _ in range(25)]
    assert blocks_ns == [pytest.approx([2e6] * 4)] * 25


def test_without_a_rest_what_ran_before_is_in_long_calls(limited):
    """What rests are for."""
    _, reading = measured(limited, "cold", rest=0)
    assert reading.rest == 0
    assert all(min(reading.medians(arm)) > 1.05 * TIMES[arm] for arm in TIMES)
    ratios = [a / b for a, b in zip(reading.medians("sdpa"), reading.medians("sdpa" + AA), strict=True)]
    assert max(abs(ratio - 1) for ratio in ratios) > 0.02


class Ahead(Bench):
    """Its second kernel has worked before its calls where the values were there when they were queued."""

    cheats, visible_ns, order = True, 0.0, ()

    def _write(self, indices):
        super()._write(indices)
        self.visible_ns = self.gpu.streams["main"]
        self.order += ("write",)

    def _call(self, arm):
        run = benches.Bench._call(self, arm)

        def timed(index):
            self.order += ("call",)
            out = run(index)
            is_ready = arm == "eager" and self.cheats and self.gpu.host > self.visible_ns
            self.gpu.launch(Work(US if is_ready else TIMES[arm]))
            return out

        return timed


@pytest.fixture
def ahead(monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda *_: 0)
    bench = Ahead(SimulatedGpu())
    spin = bench.gpu.spin
    bench.gpu.spin = lambda cycles: (setattr(bench, "order", (*bench.order, "gate")), spin(cycles))
    bench.open({"operation": "attention", "dtype": "float32", "sizes": SIZES})
    for arm in TIMES:
        bench.load(arm)
    bench.prepare(seeds=list(range(9)), sets=8)
    return bench


def test_inputs_that_come_at_once_are_written_behind_the_gate_and_before_the_calls(ahead):
    for at_once, order in ((False, ["write", "gate", "gate", "call"]), (True, ["gate", "gate", "write", "call"])):
        ahead.order = ()
        block = ahead.block("sdpa", calls=1, gate_ns=1_000_000, untimed=False, at_once=at_once)
        assert list(ahead.order) == order and block.gated
        assert block.ticks_ns == pytest.approx([TIMES["sdpa"]])
    block = ahead.block("sdpa", calls=1, untimed=False, at_once=True, seeds=[100])
    assert ahead.sets.seed(0) == 100, "without a gate they are written, too"


@pytest.mark.parametrize("cheats", [True, False])
@pytest.mark.parametrize("call_ns", [9e3, 5e7])
def test_work_while_inputs_wait_is_seen_where_calls_are_queued_before_their_inputs_are_there(ahead, cheats, call_ns):
    ahead.cheats = cheats
    engine = SimpleNamespace(
        session=ahead, cuda=True, input_bytes=0, rng=random.Random(1), seeds=lambda n: list(range(n))
    )
    why = Doubts(engine)._why_ahead_alone("eager", call_ns)
    assert why.startswith("works before its calls: 15.0 times faster") if cheats else not why


@pytest.mark.parametrize("cheats", [True, False])
def test_who_works_before_its_calls_in_the_rounds_only_is_found_in_them_and_timed_again_first(ahead, cheats):
    ahead.cheats = cheats
    _, reading = measured(ahead, "cold", block_ms=0.1)
    ahead.cheats = False
    assert set(reading.spots) == set(TIMES) and len(reading.spots["eager"]) >= 2
    assert [tick for spot in reading.spots["sdpa"] for tick in spot] == pytest.approx(
        [TIMES["sdpa"]] * 2 * len(reading.spots["sdpa"])
    )
    engine = SimpleNamespace(session=SimpleNamespace(replaceable=True), cuda=True, retry=RetryInNewProcess)
    doubts = Doubts(engine)
    assert not doubts._why_ahead("sdpa", [reading], 9e3)
    if not cheats:
        assert not doubts._why_ahead("eager", [reading], 9e3)
        return
    with pytest.raises(RetryInNewProcess):
        doubts._why_ahead("eager", [reading], 9e3)
    assert doubts._why_ahead("eager", [reading], 9e3).startswith("works before its calls: 15.0 times faster")


def test_replays_whose_inputs_come_last_take_as_long_and_their_inputs_are_written_behind_the_gate(ahead):
    ahead.cheats = False
    reading = measured(ahead, "auto")[1]
    assert reading.mode == "graph" and set(reading.spots) == set(TIMES)
    for arm, spots in reading.spots.items():
        assert [tick for spot in spots for tick in spot] == pytest.approx([TIMES[arm]] * 2 * len(spots), rel=0.01)
    ahead.capture("sdpa")
    for at_once, order in ((False, ("write", "gate", "gate")), (True, ("gate", "gate", "write"))):
        ahead.order = ()
        ahead.replay("sdpa", 1, gate_ns=1_000_000, untimed=False, at_once=at_once)
        assert [what for what in ahead.order if what != "call"] == list(order)
    drawn, launches, launch = [], [], ahead.graphs["sdpa"].launch
    ahead.graphs["sdpa"].launch = lambda *of: (launches.append(of), launch(*of))[1]
    draw, ahead.sets.draw = ahead.sets.draw, lambda seed: (drawn.append((seed, len(launches))), draw(seed))[1]
    ahead.replay("sdpa", 1, seeds=[20, 21])
    assert drawn == [(20, 1), (21, 1)], "new values are drawn after the untimed replay"
    assert [ahead.sets.seed(index) for index in range(2)] == [20, 21]
