"""Clocks: how long calls take on a device. Used in the measuring child only.

Every function that reads time is bound before any kernel's file runs, here and in runtime.py. A kernel that later
replaces `torch.cuda.Event.elapsed_time` or `time.perf_counter_ns` changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from secrets import randbelow
from time import perf_counter_ns, process_time_ns, sleep
from typing import Any, Protocol

import torch

from kernels.child import outputs, poison
from kernels.contract.replies import TimedBlock
from kernels.host.cpu_cache import cpu_cache_bytes

fill_all = torch._foreach_mul_
Call = Callable[[int], Any]
"""Runs the arm on input set i (modulo the number of sets). Returns its output."""
After = Callable[[int, Any], bool]
"""Gets the position of a call in its block, and its output, before anything else is queued. Returns whether it copied it."""

SPIN_HZ = 2.0e9
"""Assumed clock of a spin gate, cycles per second: at or above every maximum SM clock, so that no gate is too short."""
LEAD_CYCLES = 20_000
"""Spin while the host starts the gate: the gate's two events then time only the gate."""
READABLE_GATE_NS = 300_000
"""A gate of at least this length gives the SM clock to 1%: starting it takes 3 us."""


def nothing(position: int, out: Any) -> bool:
    """Nothing is done after a call."""
    return False


@dataclass
class Block:
    """The raw reading of one block of calls."""

    ticks_ns: list[float]
    """One duration per call; for graphs, a replay's time / its calls."""
    enqueue_ns: int = 0
    """Host time to launch the block."""
    cpu_ns: list[int] = field(default_factory=list)
    """CPU time of the process in each call; empty on a GPU."""
    between_ns: list[int] = field(default_factory=list)
    """What passes after the end of each call until the next line that may copy its output, if none was copied; not on a GPU."""
    gate_ns: float = 0.0
    """Measured length of the spin gate; 0 without one."""
    gate_cycles: int = 0
    """Length of the gate in SM cycles."""
    outputs: list[Any] = field(default_factory=list)
    """Of every call, all alive: which one is checked is chosen afterwards."""

    def reply(self) -> TimedBlock:
        """What the parent gets of it."""
        return TimedBlock(
            ticks_ns=self.ticks_ns,
            enqueue_ns=self.enqueue_ns,
            cpu_ns=self.cpu_ns,
            between_ns=self.between_ns,
            gate_ns=self.gate_ns,
            gated=self.gated,
            sm_mhz=self.sm_mhz,
        )

    @property
    def gated(self) -> bool:
        """Whether every launch was queued before the first one started."""
        return self.gate_ns == 0 or self.enqueue_ns <= self.gate_ns

    @property
    def sm_mhz(self) -> float | None:
        """The SM clock during the gate, read in the stream: cycles / time."""
        return self.gate_cycles / self.gate_ns * 1e3 if self.gate_ns >= READABLE_GATE_NS else None


class Clock(Protocol):
    """What the bench needs to time calls: one class for CUDA, one for the CPU."""

    kind: str
    cache_bytes: int

    def synchronize(self) -> None: ...
    def rest(self, ns: int) -> None: ...
    def free_bytes(self) -> int: ...
    def evict(self) -> None:
        """Empties the cache, by reading."""

    def block(
        self, call: Call, indices: Sequence[int], gate_ns: int, flush: bool, *, after: After = nothing
    ) -> Block: ...


class Runtime(Protocol):
    """A device that can be timed by its own events: a CUDA device, or the simulated GPU."""

    cache_bytes: int

    def host_ns(self) -> int: ...
    def event(self) -> Any: ...
    def record(self, event: Any) -> Any: ...
    def elapsed_ns(self, start: Any, end: Any) -> float: ...
    def synchronize(self) -> Any: ...
    def rest(self, ns: int) -> Any:
        """The host waits; the device is idle."""

    def spin(self, cycles: int) -> Any:
        """Launches a one-thread kernel that spins for `cycles` SM cycles."""

    def evict(self) -> Any:
        """Evicts L2 by reading: a write would leave dirty lines, and their write-back would fall into the next kernel's
        time."""

    def free_bytes(self) -> int: ...
    def capture(self, call: Call, indices: Sequence[int]) -> tuple[Any, list[Any]]:
        """(graph with a method `replay`, outputs): one call per index."""


@lru_cache(maxsize=1)
def _read_through(nbytes: int) -> torch.Tensor:
    """Memory that is read to empty the cache: one for all clocks of a process, since it may be large."""
    return torch.ones(nbytes // 4)


@dataclass
class CpuClock:
    """perf_counter_ns around each call. Without a queue there is no gate and no flush."""

    kind: str = "cpu"
    cache_bytes: int = field(default_factory=cpu_cache_bytes)

    def synchronize(self) -> None:
        pass

    def rest(self, ns: int) -> None:
        sleep(ns / 1e9)

    def free_bytes(self) -> int:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def evict(self) -> None:
        _read_through(self.cache_bytes).sum()

    def block(self, call: Call, indices: Sequence[int], gate_ns: int, flush: bool, *, after: After = nothing) -> Block:
        ticks, cpu, between, outs = [], [], [], []
        for position, index in enumerate(indices):
            before = process_time_ns()
            start = perf_counter_ns()
            outs.append(call(index))
            end = perf_counter_ns()
            ticks.append(float(end - start))
            cpu.append(process_time_ns() - before)
            if not after(position, outs[-1]):
                between.append(perf_counter_ns() - end)
        return Block(ticks, cpu_ns=cpu, between_ns=between, outputs=outs)

    def sustained(self, launch: Call, calls: int, launches: int, lead: int, chunks: int) -> Block:
        """Like CudaClock.sustained, without a queue."""
        ticks, number = [], 0
        for _ in range(lead + chunks):
            start = perf_counter_ns()
            for _ in range(launches):
                launch(number)
                number += 1
            ticks.append((perf_counter_ns() - start) / (launches * calls))
        return Block(ticks[lead:])


class CudaClock:
    """Events around each call, on the current stream, behind a spin gate."""

    kind = "cuda"

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.cache_bytes = runtime.cache_bytes
        self._pool: list[Any] = []

    def synchronize(self) -> None:
        self.runtime.synchronize()

    def rest(self, ns: int) -> None:
        self.runtime.rest(ns)

    def free_bytes(self) -> int:
        return self.runtime.free_bytes()

    def events(self, count: int) -> list[Any]:
        while len(self._pool) < count:
            self._pool.append(self.runtime.event())
        return self._pool[:count]

    def gate(self, gate_ns: int) -> int:
        """Holds the device back for at least this long: the following calls are queued before they start.

        Returns its SM cycles.
        """
        cycles = int(gate_ns * SPIN_HZ / 1e9)
        if cycles:
            self.runtime.spin(cycles)
        return cycles

    def evict(self) -> None:
        self.runtime.evict()

    def block(
        self,
        call: Call,
        indices: Sequence[int],
        gate_ns: int,
        flush: bool,
        before: Callable[[], Any] = lambda: None,
        first: Callable[[], Any] = lambda: None,
        *,
        after: After = nothing,
    ) -> Block:
        """One timed call per index, all queued behind the gate. `before` runs before each; on request a read flush, too.
        `first` queues what is to be done behind the gate, before all of them; `after` runs after each."""
        runtime, events = self.runtime, self.events(2 * len(indices) + 2)
        outs: list[Any] = []
        record = runtime.record
        if gate_ns:
            runtime.spin(LEAD_CYCLES)
        record(events[-2])
        cycles = self.gate(gate_ns)
        record(events[-1])
        begin = runtime.host_ns()
        first()
        for position, index in enumerate(indices):
            before()
            if flush:
                runtime.evict()
            record(events[2 * position])
            outs.append(call(index))
            record(events[2 * position + 1])
            after(position, outs[-1])
        enqueue = runtime.host_ns() - begin
        runtime.synchronize()
        elapsed = runtime.elapsed_ns
        ticks = [elapsed(events[2 * i], events[2 * i + 1]) for i in range(len(indices))]
        gate = elapsed(events[-2], events[-1]) if gate_ns else 0.0
        return Block(ticks, enqueue, gate_ns=gate, gate_cycles=cycles, outputs=outs)

    def host_block(self, call: Call, indices: Sequence[int]) -> Block:
        """Host time of each call, from its start until the device has finished: dispatch included."""
        runtime, ticks, outs = self.runtime, [], []
        host_ns, synchronize = runtime.host_ns, runtime.synchronize
        for index in indices:
            synchronize()
            begin = host_ns()
            outs.append(call(index))
            synchronize()
            ticks.append(float(host_ns() - begin))
        return Block(ticks, outputs=outs)

    def sustained(self, launch: Call, calls: int, launches: int, lead: int, chunks: int) -> Block:
        """Launches back to back: `lead` chunks untimed, then `chunks` timed; a chunk has `launches` launches of `calls`
        calls each.

        A sample is a chunk's time / its calls. Only an event separates chunks.
        """
        events, number = self.events(chunks + 1), 0
        for chunk in range(lead + chunks):
            if chunk >= lead:
                self.runtime.record(events[chunk - lead])
            for _ in range(launches):
                launch(number)
                number += 1
        self.runtime.record(events[chunks])
        self.synchronize()
        elapsed = self.runtime.elapsed_ns
        return Block([elapsed(events[i], events[i + 1]) / (launches * calls) for i in range(chunks)])

    def capture(self, call: Call, indices: Sequence[int]) -> Graph:
        return Graph(self, call, indices)


class Graph:
    """One captured CUDA graph: the arm once on every input set. A fresh capture each round randomises placement."""

    def __init__(self, clock: CudaClock, call: Call, indices: Sequence[int]) -> None:
        self.clock, self.indices = clock, list(indices)
        self.graph, self.outputs = clock.runtime.capture(call, self.indices)
        clock.synchronize()

    def poison(self) -> None:
        """Fills the outputs with poison: elements that a replay does not write show."""
        with torch.inference_mode():  # a kernel may return inference tensors, which can be written only here
            outs = [one for out in self.outputs for one in outputs.as_tuple(outputs.plain(out))]
            floating = [one for one in outs if isinstance(one, torch.Tensor) and one.is_floating_point()]
            if floating:
                fill_all(floating, float("nan"))
            for one in outs:
                if not any(one is other for other in floating):
                    poison.fill(one)

    def launch(self, index: int = 0) -> None:
        self.graph.replay()

    def block(
        self,
        replays: int,
        gate_ns: int,
        flush: bool,
        first: Callable[[], Any] = lambda: None,
        after: After = nothing,
    ) -> Block:
        """`replays` timed replays, each over poisoned outputs, with nothing in the cache. A sample is a replay's time / its
        calls. first: as in CudaClock.block. after: runs after each replay, with one of its outputs."""

        def one_of(_: int, nothing: Any) -> bool:
            return after(position := randbelow(len(self.outputs)), self.outputs[position])

        block = self.clock.block(self.launch, range(replays), gate_ns, flush, self._unknown, first, after=one_of)
        block.ticks_ns = [tick / len(self.indices) for tick in block.ticks_ns]
        block.outputs = self.outputs
        return block

    def _unknown(self) -> None:
        """A replay that finds its results in memory has nothing to do. The poison would leave the cache full of dirty lines,
        whose write-back would fall into the replay's time: they are evicted."""
        self.poison()
        self.clock.evict()
