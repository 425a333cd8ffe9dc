"""Whether the calls of a captured graph wait for each other, from its edges and what its stream waited for after each call."""

import ctypes

import pytest

from kernels.child.__main__ import fault
from kernels.child.captured import CallsOverlap, Captures, NotCaptured, first_that_does_not_wait


def ends(*of):
    return [frozenset(end) for end in of]


HONEST = {
    "one node a call": (ends((), {1}, {2}, {3}), [(1, 2), (2, 3)]),
    "two nodes a call": (ends((), {2}, {4}), [(1, 2), (2, 3), (3, 4)]),
    "a call without work": (ends((), {1}, {1}, {2}), [(1, 2)]),
    "a fork inside a call that is joined": (ends((), {1}, {4}), [(1, 2), (1, 3), (2, 4), (3, 4)]),
    "a fork that the next call's work joins": (ends((), {1, 2}, {3}), [(1, 3), (2, 3)]),
    "two streams that both wait": (ends((), {1, 2}, {3, 4}), [(1, 3), (2, 3), (1, 4), (2, 4)]),
    "one that waits by way of another": (ends((), {1}, {3, 2}), [(1, 2), (2, 3)]),
    "work before the first call": (ends({9}, {1}, {2}), [(9, 1), (1, 2)]),
}
OVERLAPS = {
    "each forks from the beginning": (ends((), {1, 2}, {1, 2, 3}, {4}), [(1, 4), (2, 4), (3, 4)], 1),
    "each forks from the first call": (ends((), {1}, {2}, {2, 3}), [(1, 2), (1, 3)], 2),
    "a part does not wait": (ends((), {1, 2}, {3, 4}), [(1, 3), (2, 3), (1, 4)], 1),
    "its second node waits, its first does not": (ends((), {1}, {3}), [(1, 3), (2, 3)], 1),
}


@pytest.mark.parametrize("what", HONEST)
def test_calls_that_wait(what):
    assert first_that_does_not_wait(*HONEST[what]) is None


@pytest.mark.parametrize("what", OVERLAPS)
def test_calls_that_overlap(what):
    *graph, number = OVERLAPS[what]
    assert first_that_does_not_wait(*graph) == number


class Driver:
    """In place of libcuda: a capture in which the test adds nodes. `waits`: whether each waits for the one before it."""

    def __init__(self, waits):
        self.waits, self.nodes = waits, []

    def cuStreamGetCaptureInfo_v3(self, stream, status, number, graph, nodes, data, count):
        last = self.nodes[-1:] if self.waits else self.nodes
        self.kept = (ctypes.c_void_p * len(last))(*last)
        graph._obj.value, count._obj.value = 77, len(last)
        nodes._obj.contents = ctypes.c_void_p.from_buffer(self.kept) if last else ctypes.c_void_p()
        return 0

    def cuGraphGetEdges_v2(self, graph, sources, targets, data, count):
        assert graph.value == 77
        if sources is not None and not count._obj.value:
            return 1  # as the driver answers
        edges = list(zip(self.nodes, self.nodes[1:], strict=False)) if self.waits else []
        count._obj.value = len(edges)
        for i, (source, target) in enumerate(edges if sources else ()):
            sources[i], targets[i] = source, target
        return 0

    def call(self, index):
        self.nodes.append(1000 + index)
        return index


def captured(monkeypatch, driver):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    return Captures().in_turn(driver.call, range(3), stream=5)


def test_the_driver_is_asked_after_each_call(monkeypatch):
    assert captured(monkeypatch, Driver(waits=True)) == [0, 1, 2]


def test_one_call_of_one_node_has_no_edges(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    driver = Driver(waits=True)
    assert Captures().in_turn(driver.call, range(1), stream=5) == [0]


def test_calls_that_do_not_wait_are_refused(monkeypatch):
    with pytest.raises(CallsOverlap, match="call 2 does not wait for the one before it"):
        captured(monkeypatch, Driver(waits=False))


def test_a_call_that_launches_elsewhere_is_not_captured(monkeypatch):
    """Its replays would do nothing, and an honest kernel would look wrong."""
    driver = Driver(waits=True)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    with pytest.raises(NotCaptured) as found:
        Captures().in_turn(lambda index: driver.call(index) if index < 2 else None, range(3), stream=5)
    said = fault(found.value, must_replace=False)
    assert (said.kind, said.message) == ("raised", "it launches nothing on PyTorch's current stream"), (
        "a page quotes it"
    )


def test_a_driver_that_cannot_tell_stops_nothing(monkeypatch):
    old = Driver(waits=False)
    old.cuGraphGetEdges_v2 = None
    assert captured(monkeypatch, old) == [0, 1, 2]


def test_an_error_of_the_driver_is_an_error(monkeypatch):
    broken = Driver(waits=True)
    broken.cuGraphGetEdges_v2 = lambda *of: 400
    with pytest.raises(RuntimeError, match="status 400"):
        captured(monkeypatch, broken)
