"""A result says how many elements its reference cannot decide."""

from kernels.contract.arm_result import Correctness
from runs.views.correctness import facts

NAME = "undecided by the reference itself"


def test_undecided_elements_are_named_beside_all():
    said = dict(facts(Correctness(correct=True, undecided=1056, elements=3200)))
    assert said[NAME] == "1056 of 3200 elements: rounding decides them"
    for nothing in (None, 0):
        assert NAME not in dict(facts(Correctness(correct=True, undecided=nothing, elements=3200)))
