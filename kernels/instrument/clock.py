"""Clocks: how long calls take on a device. Used in the measuring child only.

Everything that reads time is bound here, when this module is imported, which is before any kernel's file runs: a
kernel that replaces `torch.cuda.Event.elapsed_time` or `time.perf_counter_ns` afterwards changes nothing here.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Protocol

import torch

Call = Callable[[int], Any]
"""Runs the arm on input set number i (modulo the number of sets) and returns its output."""

SPIN_HZ = 2.0e9
"""Cycles per second assumed for a spin gate: at or above every maximum SM clock, so that a gate is never too short."""
FLUSH_FACTOR = 2
"""A read flush reads this many times the L2."""


@dataclass
class Block:
    """The raw reading of one block of calls."""

    ticks_ns: list[float]
    """One duration per call, or per graph replay divided by its nodes."""
    enqueue_ns: int = 0
    """Host time to launch the block."""
    gate_ns: float = 0.0
    """How long the spin gate really held the device back; 0 without one."""
    kept: Any = None
    """The output of the call that was to be kept."""

    @property
    def gated(self) -> bool:
        """Whether every launch was queued before the first could start."""
        return self.gate_ns == 0 or self.enqueue_ns <= self.gate_ns


class Clock(Protocol):
    """What a device must be able to do; CUDA, the CPU and the simulator each have one."""

    kind: str
    cache_bytes: int

    def synchronize(self) -> None: ...
    def free_bytes(self) -> int: ...
    def block(self, call: Call, indices: Sequence[int], gate_ns: int, flush: bool, keep: int | None) -> Block: ...


def cpu_cache_bytes() -> int:
    """Size of the last-level cache, 32 MiB where the kernel does not say."""
    sizes = [0]
    for index in range(5):
        try:
            with open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size") as file:
                sizes.append(int(file.read().strip().rstrip("K")) * 1024)
        except (OSError, ValueError):
            continue
    return max(sizes) or 32 * 2**20


@dataclass
class CpuClock:
    """perf_counter_ns around each call. There is no queue, so no gate and no flush."""

    kind: str = "cpu"
    cache_bytes: int = field(default_factory=cpu_cache_bytes)

    def synchronize(self) -> None:
        pass

    def free_bytes(self) -> int:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def block(self, call: Call, indices: Sequence[int], gate_ns: int, flush: bool, keep: int | None) -> Block:
        ticks, kept = [], None
        for position, index in enumerate(indices):
            start = perf_counter_ns()
            out = call(index)
            ticks.append(float(perf_counter_ns() - start))
            if position == keep:
                kept = out
        return Block(ticks, kept=kept)


class CudaClock:
    """CUDA events around each call, on the current stream, behind a spin gate."""

    kind = "cuda"

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(0)
        self.cache_bytes = properties.L2_cache_size
        self._event = torch.cuda.Event
        self._record = torch.cuda.Event.record
        self._elapsed = torch.cuda.Event.elapsed_time
        self._sync = torch.cuda.synchronize
        self._spin = torch.cuda._sleep
        self._flush_buffer: Any = None
        self._pool: list[Any] = []

    def synchronize(self) -> None:
        self._sync()

    def free_bytes(self) -> int:
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()

    def events(self, count: int) -> list[Any]:
        while len(self._pool) < count:
            self._pool.append(self._event(enable_timing=True))
        return self._pool[:count]

    def gate(self, gate_ns: int) -> None:
        """Holds the device back for at least this long, so that what follows is queued before it may start."""
        if gate_ns:
            self._spin(int(gate_ns * SPIN_HZ / 1e9))

    def flush(self) -> None:
        """Evicts L2 by reading: a write would leave dirty lines whose write-back lands in the next kernel's time."""
        if self._flush_buffer is None:
            self._flush_buffer = torch.ones(FLUSH_FACTOR * self.cache_bytes // 4, dtype=torch.int32, device="cuda")
        self._flush_buffer.sum()

    def block(self, call: Call, indices: Sequence[int], gate_ns: int, flush: bool, keep: int | None) -> Block:
        events = self.events(2 * len(indices) + 2)
        record, kept = self._record, None
        record(events[-2])
        self.gate(gate_ns)
        record(events[-1])
        begin = perf_counter_ns()
        for position, index in enumerate(indices):
            if flush:
                self.flush()
            record(events[2 * position])
            out = call(index)
            record(events[2 * position + 1])
            if position == keep:
                kept = out
        enqueue = perf_counter_ns() - begin
        self._sync()
        elapsed = self._elapsed
        ticks = [elapsed(events[2 * i], events[2 * i + 1]) * 1e6 for i in range(len(indices))]
        return Block(ticks, enqueue, elapsed(events[-2], events[-1]) * 1e6 if gate_ns else 0.0, kept)

    def capture(self, call: Call, indices: Sequence[int]) -> Graph:
        return Graph(self, call, indices)


class Graph:
    """One captured CUDA graph: the arm called once on every input set. Fresh captures remove what one capture fixes."""

    def __init__(self, clock: CudaClock, call: Call, indices: Sequence[int]) -> None:
        self.clock, self.indices = clock, list(indices)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call(self.indices[0])
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = [call(index) for index in self.indices]
        clock.synchronize()

    def poison(self) -> None:
        """Fills the outputs with NaN: what a replay does not write shows."""
        with torch.inference_mode():  # a kernel may return inference tensors, which nothing else may write
            for out in self.outputs:
                if isinstance(out, torch.Tensor) and out.is_floating_point():
                    out.fill_(float("nan"))

    def block(self, replays: int, gate_ns: int, flush: bool, keep: int | None) -> Block:
        """`replays` timed replays; a tick is a replay's time over its nodes."""
        clock = self.clock
        self.poison()
        self.graph.replay()
        block = clock.block(lambda _: self.graph.replay(), range(replays), gate_ns, flush, None)
        block.ticks_ns = [tick / len(self.indices) for tick in block.ticks_ns]
        if keep is not None:
            block.kept = self.outputs[keep % len(self.outputs)]
        return block


def spread(ticks: Sequence[float]) -> float:
    """(max - min) / median"""
    return (max(ticks) - min(ticks)) / statistics.median(ticks)
