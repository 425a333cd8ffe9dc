"""A measuring process that dies where no kernel runs costs nobody a result: another takes its place."""

import os
import random
import signal
from types import SimpleNamespace

import pytest

from kernels.contract.arm_result import Status
from kernels.contract.events import CrossChecked, Measured
from kernels.host.device import find_device
from kernels.parent import session as session_module
from kernels.parent.arm import Arm
from kernels.parent.child_process import CannotStart, Child, ChildDied, CommandFailed
from kernels.parent.engine import Engine
from kernels.parent.session import ChildSession
from kernels.parent.supervisor import Supervisor
from kernels.workload import Config, RunSpec, Workload

WORKLOAD = Workload(operation="attention", sizes={"batch": 1, "heads": 2, "seq_len": 16, "head_dim": 64})


SWISH = {"operation": "swish", "dtype": "float32", "sizes": {"rows": 8, "cols": 16}}


class ScriptedChild:
    """Dies, or fails, as its script says, one word for each thing asked."""

    script, made = [], 0
    ready = {"device": "a CPU"}

    def __init__(self, device, fresh):
        type(self).made += 1
        self.alive, self.process = True, SimpleNamespace(pid=1)
        self.log = SimpleNamespace(tail=lambda size=0: "", whole=lambda: "")

    def _next(self, answer):
        error = self.script.pop(0) if self.script else None
        if error is None:
            return answer
        self.alive = not isinstance(error, ChildDied)
        raise error

    def wait_ready(self):
        return self._next({"device": "a CPU"})

    def call(self, do, limit_s=0, **arguments):
        return self._next(None)

    def close(self):
        self.alive = False


@pytest.fixture
def scripted(monkeypatch):
    monkeypatch.setattr(session_module, "Child", ScriptedChild)

    def with_script(*script):
        ScriptedChild.script, ScriptedChild.made = list(script), 0
        return ChildSession(find_device("cpu"), lambda: False)

    return with_script


KILLED = ChildDied("killed by SIGKILL")


def test_a_child_that_dies_in_warm_up_is_replaced(scripted):
    assert scripted(KILLED, KILLED).wait_ready() == {"device": "a CPU"}
    assert ScriptedChild.made == 3


def test_a_child_that_dies_while_it_makes_inputs_is_replaced(scripted):
    session = scripted(KILLED)
    session.open(WORKLOAD)
    assert ScriptedChild.made == 2


def test_three_deaths_in_a_row_are_no_accident(scripted):
    with pytest.raises(ChildDied, match="killed by SIGKILL"):
        scripted(KILLED, KILLED, KILLED).wait_ready()
    assert ScriptedChild.made == 3


def test_a_child_without_torch_is_not_tried_again(scripted):
    with pytest.raises(CannotStart):
        scripted(CannotStart("No module named 'torch'")).wait_ready()
    assert ScriptedChild.made == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [(KILLED, Status.CRASHED), (CommandFailed(SimpleNamespace(
        message="tried to allocate 9 GiB", kind="out of memory", traceback="", must_replace=False)), Status.OUT_OF_MEMORY)],
    ids=["killed", "out of memory"],
)  # fmt: skip
def test_a_workload_whose_inputs_no_process_can_make_fails_alone(scripted, error, status):
    session, arms = scripted(error, error, error), [Arm("sdpa"), Arm("eager")]
    plan = SimpleNamespace(mode="auto", compile_limit_s=1)
    engine = Engine(
        session, lambda afresh: session.open(WORKLOAD, afresh), None, arms, "sdpa", plan, None, [], random.Random(), False, None
    )  # fmt: skip
    engine.verify()
    assert {arm.status for arm in arms} == {status}
    assert [timed.arms for timed in engine.time()] == [[]]


@pytest.mark.timeout(120)
@pytest.mark.thorough("two whole runs whose processes are killed")
def test_a_run_goes_on_when_its_child_is_killed_in_warm_up_and_at_open(monkeypatch):
    start, call, killed = Child._start, Child.call, []

    def kill_once(child, when):
        if when not in killed:
            killed.append(when)
            os.kill(child.process.pid, signal.SIGKILL)

    def started(child):
        start(child)
        kill_once(child, "warm-up")

    def called(child, do, *arguments, **more):
        if do == "open":
            kill_once(child, "open")
        return call(child, do, *arguments, **more)

    monkeypatch.setattr(Child, "_start", started)
    monkeypatch.setattr(Child, "call", called)
    monkeypatch.setattr("kernels.parent.supervisor.crosscheck", lambda context, statuses: CrossChecked(seen=[]))
    sizes = {"batch": 1, "heads": 2, "seq_len": 16, "head_dim": 64, "dtype": "float32"}
    protocol = {"name": "fixed", "warmup": 0, "iters": 2, "verify_seeds": 1}
    config = Config(name="t", operation="attention", kernels=["sdpa"], protocol=protocol, workloads=[sizes])
    events, device = [], find_device("cpu")
    Supervisor(RunSpec.of(config, device.uuid, ceilings=CEILINGS), device, events.append).run()
    (found,) = [event for event in events if isinstance(event, Measured)]
    assert killed == ["warm-up", "open"]
    assert [(arm.status, arm.why) for arm in found.results] == [("ok", "")]


CEILINGS = {"matmul_tflops": {"float32": 1.0}, "copy_gb_per_s": 10.0, "read_gb_per_s": 10.0}


@pytest.mark.thorough("PyTorch's compiler compiles C++")
def test_pytorchs_compiler_leaves_no_thread_behind():
    """Beside a thread that a kernel left, nothing is timed: its process would be replaced, and it would compile again."""
    child = Child(find_device("cpu"))
    try:
        child.call("open", workload=SWISH)
        for arm in ("functional", "compiled"):
            child.call("load", arm=arm)
            child.call("compile", 300, arm=arm, seed=1)
            assert not child.call("verify", arm=arm, seed=2, thorough=True, look=True).busy
            watched = child.call("watch", arm=arm)
            assert not (watched.threads or watched.must_replace), arm
    finally:
        child.close()
