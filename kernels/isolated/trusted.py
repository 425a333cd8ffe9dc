"""The trusted process: it owns inputs, seeds and references, and reads outputs. It loads no kernel."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import torch

from kernels.child import outputs
from kernels.child.clock import CpuClock, CudaClock
from kernels.child.reference import Reference, measure
from kernels.child.runtime import CudaRuntime
from kernels.contract.isolation import Attached, Judged, Opened, Output, Paced, Taken
from kernels.contract.replies import Nothing
from kernels.isolated import device_memory
from kernels.isolated.memory import Layout, Reader, mapped
from kernels.isolated.serving import Pipes
from kernels.operations.base import Distribution, Inputs
from kernels.workload import Workload

LARGEST = 64
"""An output may span this many times the bytes that are expected."""
PACE_BYTES, PACE_COPIES = 2**28, 40
"""Work on the device of about 5 ms on an H200: longer than a time slice of another process."""


class Trusted:
    """One workload at a time, and the cells that measure it."""

    def __init__(self, kind: str, pipes: Pipes) -> None:
        self.kind = kind
        self.device = "cuda:0" if kind == "cuda" else "cpu"
        self.clock: Any = CudaClock(CudaRuntime()) if kind == "cuda" else CpuClock()
        self.sets: dict[str, list[Inputs]] = {}
        self.owned: dict[str, int] = {}
        self.readers: dict[str, Reader] = {}
        self.taken: list[Any] = []

    def open(self, workload: dict[str, Any]) -> Opened:
        self.problem = Workload(**workload).problem
        self.layout = Layout(self.problem, self.device)
        likes = outputs.likes(self.problem, self.problem.inputs(self.device, 0))
        self.output_bytes = sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in likes)
        return Opened(
            set_bytes=self.layout.nbytes, output_bytes=self.output_bytes, free_bytes=int(self.clock.free_bytes())
        )

    def attach(self, cell: str, sets: int, pid: int, path: str = "") -> Attached:
        """Memory for a cell's input sets: the file, or new device memory."""
        nbytes = sets * self.layout.nbytes
        if self.kind == "cuda":
            self.owned[cell] = device_memory.allocate(nbytes)
            memory = device_memory.as_bytes(self.owned[cell], nbytes)
        else:
            memory = mapped(path, nbytes)
        self.sets[cell] = self.layout.sets(memory, sets)
        self.readers[cell] = Reader(self.kind, pid, most_bytes=LARGEST * self.output_bytes)
        return Attached(handle=device_memory.handle_of(self.owned[cell]).hex() if self.kind == "cuda" else "")

    def detach(self, cell: str) -> Nothing:
        self.sets.pop(cell, None)
        if reader := self.readers.pop(cell, None):
            reader.close()
        if address := self.owned.pop(cell, 0):
            self.clock.synchronize()
            device_memory.free(address)
        return Nothing()

    def _values(self, seed: int, index: int, distribution: Distribution) -> Inputs:
        return self.problem.inputs(self.device, (seed + index * 1_000_003) % 2**31, distribution)

    def write(self, cell: str, seed: int, calls: int, distribution: Distribution = "normal") -> Nothing:
        """Fresh values for the first input sets of a cell, different in each."""
        for index in range(calls):
            fresh = self._values(seed, index, distribution)
            for old, new in zip(self.sets[cell][index].tensors, fresh.tensors, strict=True):
                old.copy_(new)
        self.clock.synchronize()
        return Nothing()

    def reach(self, cell: str, segments: list[tuple[int, str]]) -> Taken:
        """Opens the device memory of a cell's outputs; closes what was open."""
        reader = self.readers[cell]
        reader.close()
        try:
            reader.open(segments)
        except (ValueError, OSError, device_memory.DriverError) as error:
            return Taken(refused=str(error))
        return Taken()

    def take(self, cell: str, calls: list[list[dict[str, Any]]]) -> Taken:
        """Copies the outputs of some calls out of the cell's memory."""
        self.taken = []
        try:
            reader, copies = self.readers[cell], []
            for claims in calls:
                outputs = [Output.model_validate(one) for one in claims]
                reader.must_have_room(outputs)
                copies.append([reader.copy(one) for one in outputs])
        except (ValueError, OSError, RuntimeError, OverflowError, MemoryError) as error:
            return Taken(refused=f"{type(error).__name__}: {error}")
        self.clock.synchronize()
        self.taken = [one[0] if len(one) == 1 else tuple(one) for one in copies]
        return Taken()

    def judge(
        self, cell: str, seed: int, indices: list[int], thorough: bool = False, distribution: Distribution = "normal"
    ) -> Judged:
        """Compares the taken outputs with the references of the calls' inputs. indices: of these calls."""
        readings, changed = [], False
        for index, out in zip(indices, self.taken, strict=True):
            values = self._values(seed, index, distribution)
            readings.append(measure(out, Reference(self.problem, values, seed, thorough, distribution)))
            now = self.sets[cell][index].tensors
            changed |= not all(torch.equal(a, b) for a, b in zip(now, values.tensors, strict=True))
        return Judged(readings=readings, inputs_changed=changed)

    def pace(self) -> Paced:
        """Times a fixed piece of work: it takes longer if another process has work on the device."""
        if self.kind != "cuda":
            return Paced(ns=0)
        if not hasattr(self, "_paced"):
            self._paced = torch.ones(PACE_BYTES, dtype=torch.uint8, device="cuda")
        self.clock.synchronize()
        begin = perf_counter_ns()
        for _ in range(PACE_COPIES):
            self._paced[: PACE_BYTES // 2].copy_(self._paced[PACE_BYTES // 2 :])
        self.clock.synchronize()
        return Paced(ns=perf_counter_ns() - begin)
