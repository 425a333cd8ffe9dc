"""One workload among others of a run."""

from types import SimpleNamespace

import pytest

from kernels.analysis.verdicts import verdict
from kernels.child.checks import LATER_CALLS
from kernels.contract.arm_result import Status, Verdict
from kernels.host.device import find_device
from kernels.parent import crosscheck
from kernels.parent.child_process import Child
from kernels.parent.doubts import Doubts
from kernels.parent.engine import Timed
from kernels.parent.groups import MAIN, Group
from kernels.parent.reading import Reading
from kernels.parent.supervisor import Supervisor
from kernels.parent.workload_run import WorkloadRun
from kernels.workload import Ceilings, Config, RunSpec

TWIN = """from kernels.catalog import kernel


@kernel("gemm", backend="pytorch")
def eager_twin(a, b):
    return a @ b
"""
CEILINGS = Ceilings(copy_gb_per_s=100, read_gb_per_s=100)


def run_of(**protocol):
    """(a run of GEMM with two kernels on one workload)"""
    size = {"m": 8, "n": 8, "k": 8}
    config = Config(name="t", operation="gemm", kernels=["eager", "compiled"], workloads=[size], protocol=protocol)
    context = SimpleNamespace(
        spec=RunSpec.of(config, "CPU-1"),
        device=SimpleNamespace(kind="cpu", capability=None, max_sm_mhz=None),
        is_cuda=False,
        environment={"device": "a CPU"},
        l2_bytes=0,
        ceilings=None,
        telemetry=SimpleNamespace(summary=dict),
        session=SimpleNamespace(stopwatch=SimpleNamespace(take=dict)),
    )
    return WorkloadRun(context, config.workloads[0], {})


def test_each_measurement_has_a_secret_seed_and_says_it_afterwards():
    first, second, given, again = run_of(), run_of(), run_of(seed=7), run_of(seed=7)
    assert first.seed != second.seed
    assert [check.seed for check in first._checks()] != [check.seed for check in second._checks()]
    assert given.rng.of_inputs() == again.rng.of_inputs()
    assert given._checks() == again._checks()
    event = first._event(Timed(Group(MAIN, "verify", ()), []), first.arms)
    assert event.protocol.seed == first.seed
    repeated = run_of(seed=event.protocol.seed)
    assert repeated._checks() == first._checks()
    assert repeated.rng.of_inputs() == first.rng.of_inputs()


@pytest.mark.parametrize("status", [None, Status.SUSPECT, Status.INCORRECT])
def test_nothing_is_compared_with_a_baseline_that_is_not_ok(status):
    run = run_of()
    eager = run.arms[0]
    reading = Reading("cpu", {"eager": [[200.0, 210.0]] * 8, "compiled": [[100.0, 101.0]] * 8})
    if status:
        eager.fail(status, "it changed something")
    event = run._event(Timed(Group(MAIN, "cpu", ("eager", "compiled")), run.arms, reading), run.arms)
    faster = next(one for one in event.results if one.kernel == "compiled")
    assert faster.status == "ok" and faster.p50_ms is not None
    assert (faster.speedup is None) == (status is not None)
    assert any("nothing is compared with it" in note for note in event.notes) == (status is not None)


def test_a_part_whose_variables_may_slow_the_baseline_down_has_no_verdicts():
    run = run_of()
    reading = Reading("cpu", {"eager": [[200.0, 210.0]] * 8, "compiled": [[100.0, 101.0]] * 8})
    for arm in run.arms:
        arm.judged({"correct": True})
    timed = Timed(Group(MAIN, "cpu", ("eager", "compiled")), run.arms, reading)
    event = run._event(timed, run.arms)
    assert verdict(event.results[1], event) == Verdict.FASTER
    run.part.margin = 3.0
    event = run._event(timed, run.arms)
    assert event.margin == 3.0 and verdict(event.results[1], event) == Verdict.UNDECIDED


def test_a_kernel_that_has_hung_is_not_tried_on_later_workloads_of_the_run():
    config = Config(
        name="t",
        operation="gemm",
        kernels=["eager", "compiled"],
        workloads=[{"m": 8, "n": 8, "k": size} for size in (8, 16)],
    )
    first, second = config.workloads
    context = SimpleNamespace(
        spec=RunSpec.of(config, "CPU-1"), device=SimpleNamespace(kind="cpu", capability=None), is_cuda=False
    )
    before = {(first.key, "eager"): Status.OK, (first.key, "compiled"): Status.TIMED_OUT}
    eager, compiled = WorkloadRun(context, second, before).arms
    assert (eager.status, eager.why) == ("ok", "")
    assert (compiled.status, compiled.why) == ("timed out", "skipped: it hung on M=8 N=8 K=8")
    before[first.key, "compiled"] = Status.CRASHED
    assert WorkloadRun(context, second, before).arms[1].is_ok, "a crash costs little, and may be of that workload alone"


def test_a_workload_is_measured_in_as_many_fresh_processes_as_the_protocol_says(monkeypatch, tmp_path):
    (tmp_path / "gemm").mkdir()
    (tmp_path / "gemm" / "twin.py").write_text(TWIN)
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    protocol = {"processes": 3, "min_rounds": 8, "max_rounds": 8, "warmup_s": 0.05, "verify_seeds": 1}
    sizes = {"m": 64, "n": 64, "k": 64, "dtype": "float32"}
    config = Config(name="t", operation="gemm", kernels=["eager", "eager-twin"], workloads=[sizes], protocol=protocol)
    started, events, steps = [], [], []
    start = Child._start
    monkeypatch.setattr(Child, "_start", lambda child: (start(child), started.append(child.process.pid)))
    monkeypatch.setattr(Doubts, "why", lambda *of: "")  # on a busy machine a doubt starts one more process
    device = find_device("cpu")
    supervisor = Supervisor(RunSpec.of(config, device.uuid, ceilings=CEILINGS), device, events.append, steps.append)
    supervisor.run()
    (measured,) = [event for event in events if event.kind == "measured"]
    eager = next(arm for arm in measured.results if arm.kernel == "eager")
    twin = next(arm for arm in measured.results if arm.kernel == "eager-twin")
    assert len(set(started)) == 4, "three that measure, and one for the cross-check"
    assert (eager.status, twin.status, twin.why) == ("ok", "ok", "")
    assert measured.protocol.processes == 3
    assert len(twin.by_process) == 3 and twin.rounds == measured.protocol.rounds == 24
    assert len(twin.samples_ns) == len(eager.samples_ns) == 24
    low, high = (pick(ratio.ratio for ratio in twin.by_process) for pick in (min, max))
    assert low <= twin.speedup <= high
    assert twin.speedup_low < twin.speedup < twin.speedup_high
    assert any("process 3 of 3: " in str(state) for state in steps)


@pytest.mark.parametrize(
    "status, again",
    [(Status.OK, True), (Status.INCORRECT, True), (Status.OUT_OF_MEMORY, False), (Status.CRASHED, False)],
)
def test_the_cross_check_leaves_out_what_ran_out_of_memory(monkeypatch, status, again):
    """It would run out of memory once more, after up to a minute on a GPU."""
    monkeypatch.setattr(crosscheck, "arm_of", lambda *of: SimpleNamespace(is_ok=True))
    workload = SimpleNamespace(key="w")
    assert crosscheck._can_run(SimpleNamespace(device=None), workload, "mine", {("w", "mine"): status}) is again


COUNTS = """from kernels.catalog import kernel


@kernel("softmax", backend="pytorch")
def counts(x):
    print("called on", *x.shape, flush=True)
    out = x.softmax(-1)
    if x.shape[-1] == 65:
        out[:, -1] = 0
    return out
"""


def test_a_small_workload_that_others_share_is_checked_once_a_run(tmp_path, monkeypatch):
    (tmp_path / "softmax").mkdir()
    (tmp_path / "softmax" / "counts.py").write_text(COUNTS)
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    only = {"verify_only": True, "verify_seeds": 1}
    sizes = [{"rows": rows, "cols": 40, "dtype": "float32"} for rows in (3, 4)]
    config = Config(name="t", operation="softmax", kernels=["counts"], workloads=sizes, protocol=only)
    device, events = find_device("cpu"), []
    supervisor = Supervisor(RunSpec.of(config, device.uuid, ceilings=CEILINGS), device, events.append)
    supervisor.run()
    found = [arm for event in events if event.kind == "measured" for arm in event.results if arm.kernel == "counts"]
    assert [arm.status for arm in found] == [Status.INCORRECT] * 2
    assert found[0].why == found[1].why and found[0].why.startswith("at 5 x 65: ")
    first, second = (arm.correctness.edges for arm in found)
    assert first == second and first["5 x 129"] == "right" and first["5 x 65"].startswith("incorrect: ")
    said = supervisor.log().splitlines()
    assert said.count("called on 5 129") == 2 + LATER_CALLS, "the calls of one check"
    assert said.count("called on 4 40") >= 2


IN_TURN = """
import torch

from kernels.catalog import kernel

BUFFERS, CALLS = [], [0]


def in_turn(x, number):
    BUFFERS[:] = [one for one in BUFFERS if one.shape == x.shape]
    BUFFERS.extend(torch.empty_like(x) for _ in range(number - len(BUFFERS)))
    CALLS[0] += 1
    return BUFFERS[CALLS[0] % number].copy_(x.softmax(-1))


@kernel("softmax", backend="mine")
def two_buffers(x):
    return in_turn(x, 2)


@kernel("softmax", backend="mine")
def three_buffers(x):
    return in_turn(x, 3)


@kernel("softmax", backend="mine")
def own_workspace(x):
    return in_turn(x, 2).clone()
"""


@pytest.mark.parametrize("is_isolated", [False, True], ids=["shared", "isolated"])
def test_a_check_finds_buffers_that_are_returned_in_turn(is_isolated, tmp_path, monkeypatch):
    """Only a run found them: a check made two calls, whose outputs lay in different buffers."""
    tmp_path.chmod(0o755)  # an isolated kernel is another user's
    (tmp_path / "softmax").mkdir()
    (tmp_path / "softmax" / "buffers.py").write_text(IN_TURN)
    monkeypatch.setenv("KERNEL_PATH", str(tmp_path))
    names = ["eager", "two-buffers", "three-buffers", "own-workspace"]
    config = Config(
        name="t",
        operation="softmax",
        kernels=names,
        workloads=[{"rows": 64, "cols": 96, "dtype": "float32"}],
        protocol={"verify_only": True, "verify_seeds": 2, "isolated": is_isolated},
    )
    device, events = find_device("cpu"), []
    Supervisor(RunSpec.of(config, device.uuid, ceilings=CEILINGS), device, events.append).run()
    found = {arm.kernel: arm for event in events if event.kind == "measured" for arm in event.results}
    assert found["eager"].status == found["own-workspace"].status == Status.OK, found
    for name in ("two-buffers", "three-buffers"):
        assert found[name].status == Status.INCORRECT and found[name].why.startswith("calls share one output"), found
