"""A GPU that is only arithmetic, behind the same interface as CUDA's: streams, events, L2, clock, launches that take time.

kernels/child/clock.py times it as it times a real one, so what the clock does about launch gaps, a warm L2, dirty
lines and a clock that moves can be tested without hardware. Times are in ns, sizes in bytes.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

MEMORY_BYTES_PER_NS = 4_000.0
L2_BYTES_PER_NS = 12_000.0


@dataclass
class Work:
    """A kernel: how long it computes at the highest clock, and the buffers (name -> bytes) that it reads and writes."""

    compute_ns: float
    reads: dict[str, int] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)


class SimulatedGpu:
    """`launch` queues work on the current stream; everything else is what clock.Runtime asks for."""

    def __init__(
        self,
        cache_bytes: int = 60_000_000,
        launch_ns: float = 4_000,
        max_mhz: float = 1980.0,
        clock: Callable[[float], float] = lambda now_ns: 1.0,
        tireless_ns: float = float("inf"),
    ) -> None:
        self.cache_bytes, self.launch_ns, self.max_mhz = cache_bytes, launch_ns, max_mhz
        self.clock = clock
        """Time -> share of the highest clock: a ramp, a throttle, a hop."""
        self.tireless_ns, self.load_ns = tireless_ns, 0.0
        """A power limit: after so long at work without a pause the clock hunts for one that it can hold."""
        self.host = 0.0
        self.streams: dict[str, float] = {"main": 0.0}
        self.stream = "main"
        self.l2: OrderedDict[str, tuple[int, bool]] = OrderedDict()
        self.capturing: list[Work] | None = None
        self.rewritten = False
        """The inputs have new values."""

    # --- what kernels do ------------------------------------------------------------------------------------------

    def launch(self, work: Work) -> None:
        """From the host: returns when it is queued."""
        if self.capturing is not None:
            self.capturing.append(work)
            return
        self.host += self.launch_ns
        self._run(work)

    def _run(self, work: Work) -> None:
        last = self.streams[self.stream]
        begin = max(last, self.host)
        share = self.clock(begin) * self._tired(begin, begin - last, work.compute_ns)
        memory = sum(self._touch(name, size, dirty=False) for name, size in work.reads.items())
        memory += sum(self._touch(name, size, dirty=True) for name, size in work.writes.items())
        self.streams[self.stream] = begin + max(work.compute_ns / share, memory)

    def _tired(self, now_ns: float, idle_ns: float, work_ns: float) -> float:
        self.load_ns = max(0.0, min(self.load_ns, 2 * self.tireless_ns) - 4 * idle_ns) + work_ns
        hunting = 0.08 * math.sin(now_ns / 40e6)
        return 1.0 if self.load_ns <= self.tireless_ns else 0.84 + hunting

    def _touch(self, name: str, size: int, dirty: bool) -> float:
        """ns to read or write a buffer: from L2 if it is there; what it pushes out is written back if it was dirty."""
        here, was_dirty = self.l2.pop(name, (0, False))
        took = here / L2_BYTES_PER_NS + (0.0 if dirty else (size - here) / MEMORY_BYTES_PER_NS)
        self.l2[name] = min(size, self.cache_bytes), dirty or was_dirty
        while sum(held for held, _ in self.l2.values()) > self.cache_bytes:
            _, (gone, needs_writing) = self.l2.popitem(last=False)
            took += gone / MEMORY_BYTES_PER_NS if needs_writing else 0.0
        return took

    # --- clock.Runtime --------------------------------------------------------------------------------------------

    def host_ns(self) -> int:
        return round(self.host)

    def event(self) -> dict[str, float]:
        return {}

    def record(self, event: dict[str, float]) -> None:
        self.host += 500
        event["at"] = max(self.streams[self.stream], self.host)

    def elapsed_ns(self, start: dict[str, float], end: dict[str, float]) -> float:
        return end["at"] - start["at"]

    def synchronize(self) -> None:
        self.host = max(self.host, *self.streams.values())

    def spin(self, cycles: int) -> None:
        self.launch(Work(cycles / self.max_mhz * 1e3))

    def rest(self, ns: int) -> None:
        self.host += ns

    def evict(self) -> None:
        self.launch(Work(0, reads={"evicting": 2 * self.cache_bytes}))

    def free_bytes(self) -> int:
        return 100 * 2**30

    def capture(self, call: Callable[[int], Any], indices: Sequence[int]) -> tuple[SimulatedGraph, list[Any]]:
        outputs, nodes = self._recorded(call, indices)
        return SimulatedGraph(self, nodes, call, indices, outputs), outputs

    def _recorded(self, call: Callable[[int], Any], indices: Sequence[int]) -> tuple[list[Any], list[Work]]:
        self.capturing = nodes = []
        outputs = [call(index) for index in indices]
        self.capturing = None
        return outputs, nodes


@dataclass
class SimulatedGraph:
    gpu: SimulatedGpu
    nodes: list[Work]
    call: Callable[[int], Any]
    indices: Sequence[int]
    outputs: list[Any]

    def replay(self) -> None:
        """The work again; its results are written into the same outputs, which takes real time, if they were poisoned or
        the inputs are new."""
        self.gpu.host += self.gpu.launch_ns
        for work in self.nodes:
            self.gpu._run(work)
        first = self.outputs[0]
        if hasattr(first, "isnan") and (self.gpu.rewritten or first.flatten()[0].isnan()):
            self.gpu.rewritten = False
            for old, new in zip(self.outputs, self.gpu._recorded(self.call, self.indices)[0], strict=True):
                old.copy_(new)
