"""The clock's CUDA device, through PyTorch. Used in the measuring child only.

Functions that read time or wait are bound when this object is made: before any kernel's file runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns, sleep
from typing import Any

import torch

from kernels.child.captured import Captures

EVICT_FACTOR = 2
"""An eviction of L2 reads this many times its size."""


class CudaRuntime:
    """The current CUDA device, on the current stream."""

    def __init__(self) -> None:
        self.cache_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.host_ns = perf_counter_ns
        self.record = torch.cuda.Event.record
        self.synchronize = torch.cuda.synchronize
        self.spin = torch.cuda._sleep
        self._event, self._elapsed_ms = torch.cuda.Event, torch.cuda.Event.elapsed_time
        self._evicting: Any = None
        self._side: Any = None
        self.captures = Captures()

    def event(self) -> Any:
        return self._event(enable_timing=True)

    def elapsed_ns(self, start: Any, end: Any) -> float:
        return self._elapsed_ms(start, end) * 1e6

    def rest(self, ns: int) -> None:
        sleep(ns / 1e9)

    def evict(self) -> None:
        if self._evicting is None:
            self._evicting = torch.ones(EVICT_FACTOR * self.cache_bytes // 4, dtype=torch.int32, device="cuda")
        self._evicting.sum()

    def free_bytes(self) -> int:
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()

    def capture(self, call: Callable[[int], Any], indices: Sequence[int]) -> tuple[Any, list[Any]]:
        """(graph, outputs): one captured call per index, after an uncaptured one on a separate stream. Raises CallsOverlap,
        NotCaptured."""
        self._side = stream = self._side or torch.cuda.Stream()  # shared: libraries keep a workspace per stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call(indices[0])
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = self.captures.in_turn(call, indices, torch.cuda.current_stream().cuda_stream)
        return graph, outputs
