"""Graphs of isolated batches: which cells capture anew, several at once, and who is to blame if one fails."""

import os
from types import SimpleNamespace

import pytest

from kernels.contract.replies import Fault
from kernels.parent import capturing
from kernels.parent.capturing import Capturing
from kernels.parent.cell_process import Suspect, first_to_answer
from kernels.parent.child_process import ChildDied, CommandFailed
from kernels.parent.slot import CAPTURE_EVERY, Slot
from kernels.parent.stopwatch import Stopwatch

ROUND = {"sdpa": 8, "sdpa (A/A)": 8, "mine": 9}


class FakeCell:
    """A cell that notes what it is asked, in the order of all cells."""

    def __init__(self, name, seen, fails=False):
        self.name, self.seen, self.fails = name, seen, fails

    def ask(self, do, limit_s, calls):
        self.seen.append(("asked", self.name, calls))

    def told(self, do, limit_s):
        self.seen.append(("told", self.name))
        if self.fails:
            raise CommandFailed(Fault(kind="raised", message="out of memory"))


class FakeSession:
    """A session of three cells, without its processes. fails: whose capture fails. works: whose calls leave work behind."""

    def __init__(self, fails=(), works="", together=ROUND):
        self.seen, self.during, self.turn, self.works = [], Stopwatch().during, "sdpa", works
        self.slots = {name: Slot(FakeCell(name, self.seen, name in fails)) for name in ROUND}
        self.trusted = SimpleNamespace(call=lambda do, limit_s, cell, segments: self.seen.append(("freed", cell)))
        self.idleness = SimpleNamespace(must_be=self._must_be_idle)
        self.capturing = Capturing(self)
        self.capturing.together = lambda: together

    def reach(self, name):
        self.seen.append(("reached", name))

    def stop(self, name):
        self.seen.append(("stopped", self.slots.pop(name) and name))

    def _must_be_idle(self):
        if self.works in self.slots or self.works == "somebody else":
            raise Suspect("it left work running on the device after its calls")

    def what(self, kind):
        return [one[1] for one in self.seen if one[0] == kind]


@pytest.fixture(autouse=True)
def in_order(monkeypatch):
    """Fake cells answer in the order in which they were asked."""
    monkeypatch.setattr(capturing, "first_to_answer", lambda cells, limit_s: next(iter(cells)))


def test_all_cells_of_a_round_capture_at_once_and_then_none_until_all_are_due():
    made = FakeSession()
    made.capturing.before("mine", 9, 1.0)
    kinds = [one[0] for one in made.seen]
    assert kinds == ["freed"] * 3 + ["asked"] * 3 + ["told"] * 3 + ["reached"] * 3, "all are asked before one is told"
    assert {one[1:] for one in made.seen if one[0] == "asked"} == set(ROUND.items()) and made.turn == "mine"
    made.seen.clear()
    for number in range(CAPTURE_EVERY):
        for name, calls in ROUND.items():
            if (name, number) != ("mine", 0):
                made.capturing.before(name, calls, 1.0)
    assert not made.seen, "each has captured for so many batches"
    made.capturing.before("sdpa", 8, 1.0)
    assert sorted(made.what("asked")) == sorted(ROUND)


def test_a_cell_outside_of_rounds_captures_alone_and_anew_for_another_length():
    made = FakeSession(together={})
    made.capturing.before("sdpa", 8, 1.0)
    made.capturing.before("sdpa", 4, 1.0)
    assert [one for one in made.seen if one[0] == "asked"] == [("asked", "sdpa", 8), ("asked", "sdpa", 4)]


def test_the_length_that_is_asked_for_counts_and_not_that_of_the_rounds():
    made = FakeSession()
    made.capturing.before("sdpa", 4, 1.0)
    assert ("asked", "sdpa", 4) in made.seen and made.slots["sdpa"].captured == 4


def test_the_kernel_whose_capture_failed_is_to_blame_and_the_graphs_of_others_can_be_used():
    made = FakeSession(fails=("mine",))
    with pytest.raises(CommandFailed, match="out of memory"):
        made.capturing.before("sdpa", 8, 1.0)
    assert made.turn == "mine" and sorted(made.what("told")) == sorted(ROUND), "no cell owes an answer"
    assert made.what("reached") == ["sdpa", "sdpa (A/A)"], "their outputs lie in new memory"
    made.stop("mine")
    made.seen.clear()
    made.capturing.before("sdpa", 8, 1.0)
    assert not made.seen and made.slots["sdpa"].captured == 8


def test_a_cell_whose_outputs_cannot_be_read_has_no_graph_that_counts():
    made = FakeSession()

    def reach(name):
        if name == "mine":
            raise Suspect("its outputs cannot be read")

    made.reach = reach
    with pytest.raises(Suspect):
        made.capturing.before("sdpa", 8, 1.0)
    assert made.turn == "mine" and made.slots["mine"].must_capture(9) and not made.slots["sdpa"].must_capture(8)


def test_each_of_several_kernels_that_fail_in_the_same_captures_is_to_blame():
    made = FakeSession(fails=("mine", "sdpa"))
    with pytest.raises(CommandFailed):
        made.capturing.before("sdpa (A/A)", 8, 1.0)
    assert {made.turn, *(name for name, _ in made.capturing.failed_too)} == {"mine", "sdpa"}


@pytest.mark.parametrize("first", ROUND)
def test_the_kernel_that_left_work_on_the_device_is_to_blame_whoever_captured_first(first):
    made = FakeSession(works="mine")
    with pytest.raises(Suspect, match="left work running"):
        made.capturing.before(first, ROUND[first], 1.0)
    assert made.turn == "mine" and made.what("stopped") == ["mine"]


def test_work_of_somebody_else_is_no_kernels_fault():
    made = FakeSession(works="somebody else")
    with pytest.raises(Suspect):
        made.capturing.before("mine", 9, 1.0)
    assert made.turn == "sdpa", "the baseline is started again; no kernel is accused"


def test_a_cell_that_was_ended_is_not_asked():
    made = FakeSession(together=ROUND | {"gone": 3})
    made.capturing.before("sdpa", 8, 1.0)
    assert "gone" not in made.what("asked") and made.slots["sdpa"].replayed == 1


class Answering:
    """A cell with a pipe for its answers."""

    def __init__(self, answers=False, alive=True, too_large=False):
        self._answers, self.other = os.pipe()
        self.alive, self.too_large, self.should_stop = alive, too_large, lambda: False
        if answers:
            os.write(self.other, b"x")

    def _look(self):
        if self.too_large:
            raise ChildDied("it takes too much memory")


@pytest.mark.parametrize("how", [{"answers": True}, {"alive": False}, {"too_large": True}])
def test_the_first_cell_that_has_an_answer_or_will_have_none_is_told(how):
    cells = {"waits": Answering(), "first": Answering(**how), "waits too": Answering()}
    assert first_to_answer(cells, 30.0) == "first"
    assert first_to_answer({"waits": Answering()}, 0.3) == "waits", "its time is over"
