"""Graphs of isolated batches: which cells capture anew, several at once, and who is to blame if one fails."""

import pytest

from kernels.contract.replies import Fault
from kernels.parent.cell_process import Suspect
from kernels.parent.child_process import CommandFailed
from kernels.parent.isolated_session import IsolatedSession
from kernels.parent.slot import CAPTURE_EVERY, Slot
from kernels.parent.stopwatch import Stopwatch


class Capturing:
    """A cell that notes what it is asked, in the order of all cells."""

    def __init__(self, name, seen, fails=False):
        self.name, self.seen, self.fails = name, seen, fails

    def ask(self, do, limit_s, calls):
        self.seen.append(("asked", self.name, calls))

    def told(self, do, limit_s):
        self.seen.append(("told", self.name))
        if self.fails:
            raise CommandFailed(Fault(kind="raised", message="out of memory"))


def session(together, fails=""):
    """A session of three cells, without its processes."""
    made = IsolatedSession.__new__(IsolatedSession)
    made.seen, made.during, made.turn = [], Stopwatch().during, "sdpa"
    made.slots = {name: Slot(Capturing(name, made.seen, name == fails)) for name in ("sdpa", "sdpa again", "mine")}
    made.together, made._reach = together, lambda name: made.seen.append(("reached", name))
    return made


def test_all_cells_of_a_round_capture_at_once_and_then_none_until_all_are_due():
    made = session({"sdpa": 8, "sdpa again": 8, "mine": 9})
    made._capture("mine", 9, 1.0)
    names = ["mine", "sdpa", "sdpa again"]
    assert made.seen[:3] == [("asked", name, 9 if name == "mine" else 8) for name in names], "all are asked first"
    assert made.seen[3:] == [("told", name) for name in names] + [("reached", name) for name in names]
    assert made.turn == "mine"
    made.seen.clear()
    for number in range(CAPTURE_EVERY):
        for name, calls in made.together.items():
            if (name, number) != ("mine", 0):
                made._capture(name, calls, 1.0)
    assert not made.seen, "each has captured for so many batches"
    made._capture("sdpa again", 8, 1.0)
    assert [one[1] for one in made.seen if one[0] == "asked"] == ["sdpa again", "sdpa", "mine"]


def test_a_cell_outside_of_rounds_captures_alone():
    made = session({})
    made._capture("sdpa", 8, 1.0)
    assert made.seen == [("asked", "sdpa", 8), ("told", "sdpa"), ("reached", "sdpa")]
    made._capture("sdpa", 4, 1.0)
    assert ("asked", "sdpa", 4) in made.seen, "batches of another length need another graph"


def test_the_kernel_whose_capture_failed_is_to_blame_and_no_cell_owes_an_answer():
    made = session({"sdpa": 8, "sdpa again": 8, "mine": 9}, fails="mine")
    with pytest.raises(CommandFailed, match="out of memory"):
        made._capture("sdpa", 8, 1.0)
    assert made.turn == "mine" and {one[1] for one in made.seen if one[0] == "told"} == set(made.slots)


def test_the_kernel_whose_outputs_cannot_be_read_after_a_common_capture_is_to_blame():
    made = session({"sdpa": 8, "sdpa again": 8, "mine": 9})

    def reach(name):
        if name == "mine":
            raise Suspect("its outputs cannot be read")

    made._reach = reach
    with pytest.raises(Suspect):
        made._capture("sdpa", 8, 1.0)
    assert made.turn == "mine"


def test_a_cell_that_was_ended_is_not_asked():
    made = session({"sdpa": 8, "gone": 3})
    made._capture("sdpa", 8, 1.0)
    assert made.slots["sdpa"].replayed == 1 and made.seen[-1] == ("reached", "sdpa")
