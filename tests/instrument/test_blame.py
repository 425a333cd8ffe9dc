"""Who did it: what goes wrong in the rounds is the arm's that causes it alone, and never its neighbour's."""

from types import SimpleNamespace

import pytest

from kernels.analysis.suspicion import DOUBTS
from kernels.contract.arm_result import Status
from kernels.contract.replies import Fault, Nothing, Rechecked, Watched
from kernels.parent.arm import Arm
from kernels.parent.blame import Blame
from kernels.parent.child_process import CommandFailed, Forged
from kernels.parent.engine import RetryInNewProcess
from kernels.protocol import Protocol

CHANGED = Watched(changes=["torch.add: replaced"], threads=False)
SAME = Watched(changes=[], threads=False)
LEAK = [(5 * 20_000, 5)] * 6
WHY_LEAK = "memory leak: every call keeps 20000 bytes"


class Process:
    """A session whose processes do what a test says of each arm alone."""

    replaceable = True

    def __init__(self, alone, together=None, leaking=(), full_after=None):
        """leaking: those whose blocks take memory. full_after: blocks after which they do not."""
        self.alone, self.together, self.leaking, self.full_after = alone, together, leaking, full_after
        self.who, self.ended, self.calls, self.grown = "", 0, [], {}

    def replace(self):
        self.ended += 1
        self.who = ""

    def call(self, do, limit_s=0.0, **asked):
        self.calls.append((do, asked.get("arm", "")))
        if do == "load":
            self.who = asked["arm"]
        if do == "watch":
            return self.alone.get(self.who, SAME) if self.who else self.together
        if do == "recheck":
            grown, self.grown = self.grown, {}
            return Rechecked(readings=[], changed_inputs=[], grown=grown)
        if do == "block":
            self.block(**asked)
        return Nothing()

    def block(self, arm, calls):
        if isinstance(self.alone.get(arm), Exception):
            raise self.alone[arm]
        takes = self.full_after is None or sum(asked == ("block", arm) for asked in self.calls) <= self.full_after
        self.grown.setdefault(arm, []).append((calls * 20_000 if arm in self.leaking and takes else 0, calls))

    def blame(self, arm, doing, error):
        arm.blame(doing, error, "")


def engine_of(process, *names, threads=()):
    arms = [Arm(name, leaves_threads=name in threads) for name in names]
    return SimpleNamespace(
        session=process,
        arms=arms,
        alive=arms,
        baseline=names[0],
        running=arms[0],
        began=0.0,
        plan=Protocol(),
        open=lambda afresh: None,
        step=lambda kernel, text: None,
        seed=lambda: 1,
        seeds=lambda count: [1] * count,
        retry=lambda: RetryInNewProcess(),
    )


@pytest.fixture(autouse=True)
def briefly(monkeypatch):
    monkeypatch.setattr("kernels.parent.blame.ALONE_S", 0.01)


def test_an_error_is_the_running_arms_if_no_other_left_a_thread():
    process = Process({}, SAME)
    engine = engine_of(process, "sdpa", "mine")
    Blame(engine).errors(Forged("other code wrote"))
    assert [arm.status for arm in engine.arms] == [Status.SUSPECT, Status.OK]
    assert process.ended == 0, "nobody had to run alone"


def test_an_error_is_the_arms_whose_thread_causes_it_alone():
    process = Process({"mine": Forged("other code wrote")}, SAME)
    engine = engine_of(process, "sdpa", "eager", "mine", threads=("eager", "mine"))
    Blame(engine).errors(Forged("other code wrote"))
    assert [arm.status for arm in engine.arms] == [Status.OK, Status.OK, Status.SUSPECT]


def test_an_arm_that_fails_alone_too_is_not_saved_by_anothers_thread():
    failed = CommandFailed(Fault(kind="raised", message="call 7"))
    process = Process({"sdpa": failed}, SAME)
    engine = engine_of(process, "sdpa", "mine", threads=("mine",))
    Blame(engine).errors(failed)
    assert [arm.status for arm in engine.arms] == [Status.FAILED, Status.OK]


def test_what_differs_after_an_arms_last_checks_is_its_own_if_no_other_left_a_thread():
    engine = engine_of(Process({}, CHANGED), "sdpa", "mine")
    Blame(engine).after(engine.arms[1])
    assert [arm.status for arm in engine.arms] == [Status.OK, Status.SUSPECT]


def test_what_anothers_thread_changes_in_an_arms_last_checks_is_the_others():
    process = Process({"mine": CHANGED}, CHANGED)
    engine = engine_of(process, "sdpa", "mine", threads=("mine",))
    with pytest.raises(RetryInNewProcess):
        Blame(engine).after(engine.arms[0])
    assert [arm.status for arm in engine.arms] == [Status.OK, Status.SUSPECT]


def test_the_baseline_is_not_blamed_for_what_nobody_changes_alone_beside_a_thread():
    engine = engine_of(Process({}, CHANGED), "sdpa", "mine", threads=("mine",))
    blame = Blame(engine)
    for _ in range(DOUBTS):
        with pytest.raises(RetryInNewProcess):
            blame.after(engine.arms[0])
    assert [arm.is_ok for arm in engine.arms] == [True, False]


def test_a_thread_that_begins_in_the_rounds_may_be_any_kernels():
    engine = engine_of(Process({}, Watched(changes=[], threads=True)), "sdpa", "eager", "mine")
    Blame(engine).changes()
    assert [arm.leaves_threads for arm in engine.arms] == [False, True, True]


def test_what_changed_in_the_rounds_is_the_arms_that_changes_it_alone():
    process = Process({"mine": CHANGED}, CHANGED)
    engine = engine_of(process, "sdpa", "eager", "mine")
    with pytest.raises(RetryInNewProcess):
        Blame(engine).changes()
    assert [arm.status for arm in engine.arms] == [Status.OK, Status.OK, Status.SUSPECT]
    assert engine.arms[2].why == "changed global state: torch.add: replaced"


def test_what_nobody_changes_alone_is_timed_again_before_anybody_is_blamed():
    process = Process({}, CHANGED)
    engine = engine_of(process, "sdpa", "eager", "mine")
    blame = Blame(engine)
    for _ in range(2):
        with pytest.raises(RetryInNewProcess):
            blame.changes()
        assert all(arm.is_ok for arm in engine.arms)
    with pytest.raises(RetryInNewProcess):
        blame.changes()
    assert [arm.is_ok for arm in engine.arms] == [True, False, False]
    for arm in engine.arms[1:]:
        assert arm.why.startswith("one of eager, mine changed global state; to see which, measure them one at a time: ")


def test_nothing_changed_and_nobody_is_asked():
    process = Process({"mine": CHANGED}, SAME)
    Blame(engine_of(process, "sdpa", "mine")).changes()
    assert process.calls == [("watch", "")]


# --- memory that calls keep: it is counted for the whole process -------------------------------------------------------


class ThreadOf(Process):
    """Until its process is replaced, the thread of an arm takes memory in the calls of all."""

    def __init__(self, arm):
        super().__init__({}, leaking=("sdpa", "eager", arm))
        self.arm = arm

    def replace(self):
        super().replace()
        self.leaking = (self.arm,)


def test_memory_that_a_thread_takes_in_the_calls_of_all_is_the_leak_of_its_kernel():
    process = ThreadOf("mine")
    engine = engine_of(process, "sdpa", "eager", "mine", threads=("mine",))
    with pytest.raises(RetryInNewProcess):
        Blame(engine).leaks(dict.fromkeys(("sdpa", "eager", "mine"), LEAK))
    assert [(arm.name, arm.status, arm.why) for arm in engine.arms if not arm.is_ok] == [
        ("mine", Status.SUSPECT, WHY_LEAK)
    ]


def test_a_leak_that_no_kernel_shows_alone_is_nobodys():
    engine = engine_of(ThreadOf(""), "sdpa", "mine", threads=("mine",))
    blame = Blame(engine)
    for _ in range(DOUBTS):
        engine.session.leaking = ("sdpa",)
        with pytest.raises(RetryInNewProcess):
            blame.leaks({"sdpa": LEAK})
    engine.session.leaking = ("sdpa",)
    assert blame.leaks({"sdpa": LEAK}) == {} and all(arm.is_ok for arm in engine.arms)


def test_the_leak_of_one_kernel_without_threads_is_seen_at_once():
    process = Process({}, leaking=("mine",))
    assert Blame(engine_of(process, "sdpa", "mine")).leaks({"mine": LEAK}) == {"mine": WHY_LEAK}
    assert Blame(engine_of(process, "sdpa", "mine")).leaks({}) == {}
    assert process.ended == 0


@pytest.mark.parametrize("blocks, leaks", [(5, False), (15, False), (10**9, True)])
def test_a_pool_that_is_full_before_it_holds_much_is_no_leak(monkeypatch, blocks, leaks):
    monkeypatch.setattr("kernels.parent.blame.ALONE_S", 60.0)
    process = Process({}, leaking=("mine",), full_after=blocks)
    engine = engine_of(process, "sdpa", "mine")
    assert Blame(engine).leaks({"mine": LEAK}) == ({"mine": WHY_LEAK} if leaks else {})
    assert engine.running.name == "mine", "an error of these calls is its own"


def test_a_leak_that_takes_all_memory_is_one_and_another_error_is_not():
    for kind, expected in (("out of memory", {"mine": WHY_LEAK}), ("raised", None)):
        process = Process({"mine": CommandFailed(Fault(kind=kind, message="no more"))})
        blame = Blame(engine_of(process, "sdpa", "mine"))
        if expected:
            assert blame.leaks({"mine": LEAK}) == expected
        else:
            with pytest.raises(CommandFailed):
                blame.leaks({"mine": LEAK})


def test_in_the_callers_process_several_leaks_are_one_of_theirs():
    process = Process({}, leaking=("sdpa", "one", "other"))
    process.replaceable = False
    found = Blame(engine_of(process, "sdpa", "one", "other")).leaks(dict.fromkeys(("sdpa", "one", "other"), LEAK))
    assert set(found) == {"one", "other"}
    assert (
        found["one"]
        == f"{WHY_LEAK}; or one of sdpa, one, other does it in the calls of all: measure them one at a time"
    )
