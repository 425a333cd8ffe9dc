"""Whether the calls of a CUDA graph wait for each other: else a replay runs several at once, and its time says nothing about
one call. Used in the measuring child only."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Nodes = frozenset[int]
"""Nodes of a graph, by their handles."""
EDGE_BYTES = 8
"""Size of CUgraphEdgeData."""


class CallsOverlap(Exception):
    """Calls of a kernel run beside each other in its graph."""


class NotCaptured(Exception):
    """A call left nothing in the graph: it launched elsewhere, such as on the default stream."""


def first_that_does_not_wait(ends: Sequence[Nodes], edges: Iterable[tuple[int, int]]) -> int | None:
    """The first call whose work does not wait for all of the call before it; None if all wait.

    ends: the nodes that the next work of the stream waits for: before all calls, and after each. edges: (from, to) of the graph.
    """
    before: dict[int, set[int]] = {}
    for source, target in edges:
        before.setdefault(target, set()).add(source)
    owners: dict[int, int] = {}
    for number, end in enumerate(ends):
        left = [node for node in end if node not in owners]
        while left:
            if owners.setdefault(node := left.pop(), number) == number:
                left += [source for source in before.get(node, ()) if source not in owners]
    for node, number in owners.items():
        mine = {source for source in before.get(node, ()) if owners[source] == number}
        if number and not mine and not _waits(node, ends[number - 1], before):
            return number - 1
    return None


def _waits(node: int, wanted: Nodes, before: dict[int, set[int]]) -> bool:
    """Whether a node runs after all of these."""
    if wanted <= before.get(node, set()):
        return True
    seen: set[int] = set()
    left = [node]
    while left and not wanted <= seen:
        more = before.get(left.pop(), set()) - seen
        seen |= more
        left += more
    return wanted <= seen


class Captures:
    """Looks into the graph that a stream is being captured into, by the driver's own functions (CUDA 12.3 or newer; before,
    calls that overlap stay unseen)."""

    def __init__(self) -> None:
        driver = ctypes.CDLL("libcuda.so.1")
        self._info: Any = getattr(driver, "cuStreamGetCaptureInfo_v3", None)
        self._edges: Any = getattr(driver, "cuGraphGetEdges_v2", None)

    def end(self, stream: int) -> tuple[int, Nodes]:
        """(graph, what the next work of the stream waits for)."""
        status, number, graph, count = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_size_t()
        nodes, data = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_void_p()
        found = [ctypes.byref(one) for one in (status, number, graph, nodes, data, count)]
        _check(self._info(ctypes.c_void_p(stream), *found))
        return graph.value or 0, frozenset(nodes[i] or 0 for i in range(count.value))

    def edges(self, graph: int) -> list[tuple[int, int]]:
        """(from, to): the second runs after the first."""
        count, handle = ctypes.c_size_t(), ctypes.c_void_p(graph)
        _check(self._edges(handle, None, None, None, ctypes.byref(count)))
        if not count.value:
            return []  # the driver takes no empty arrays
        array = ctypes.c_void_p * count.value
        sources, targets, data = array(), array(), (ctypes.c_byte * (EDGE_BYTES * count.value))()
        _check(self._edges(handle, sources, targets, data, ctypes.byref(count)))
        return [(sources[i] or 0, targets[i] or 0) for i in range(count.value)]

    def in_turn(self, call: Callable[[int], Any], indices: Sequence[int], stream: int) -> list[Any]:
        """Captures one call per index on a stream that is capturing. Returns their outputs. Raises CallsOverlap, NotCaptured."""
        if not (self._info and self._edges):
            return [call(index) for index in indices]
        graph, end = self.end(stream)
        ends, outputs = [end], []
        for index in indices:
            outputs.append(call(index))
            ends.append(self.end(stream)[1])
            if ends[-1] == ends[-2]:
                raise NotCaptured("it launches nothing on PyTorch's current stream")
        if (number := first_that_does_not_wait(ends, self.edges(graph))) is not None:
            raise CallsOverlap(f"its calls overlap in a graph: call {number + 1} does not wait for the one before it")
        return outputs


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"a query of the CUDA driver about a graph capture failed with status {status}")
