"""The trusted process: it owns inputs, seeds and references, and reads outputs. It loads no kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any

import torch

from kernels.catalog import PROBLEM
from kernels.child import outputs
from kernels.child.clock import CpuClock, CudaClock
from kernels.child.errors import FEW
from kernels.child.poison import same
from kernels.child.reference import Reference, into_pool, measure, no_pool
from kernels.child.runtime import CudaRuntime
from kernels.child.sets import copy_all
from kernels.contract.isolation import Attached, Judged, Opened, Output, Paced, Taken
from kernels.contract.replies import Nothing
from kernels.isolated import device_memory
from kernels.isolated.brought import Brought, Given, Values
from kernels.isolated.memory import Layout, Reader, mapped
from kernels.isolated.serving import Pipes
from kernels.operations.base import Distribution, Inputs, Operation
from kernels.workload import Workload

SEED_BITS = 64
"""Bits of a seed of inputs: as many as PyTorch's generators take."""
LARGEST = 64
"""An output may span this many times the bytes that are expected."""
DRAWN_BYTES = 2**28
"""Values that are drawn before they are copied into input sets together."""
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
        self.expected: dict[int, Values] = {}
        """Correct values by input set, of a problem that came with its kernels."""

    def open(self, workload: dict[str, Any], described: dict[str, Any] | None = None) -> Opened:
        """described: by the process of a problem that came with its kernels."""
        self.problem: Operation = Workload(**workload).problem
        if described is not None:
            self.problem = Brought.of(self.problem, described)
            if why := self.problem.why_not(int(self.clock.free_bytes())):
                raise ValueError(why)
            self.pool_of_few = no_pool(len(self.problem.likes))
        self.layout = Layout.of(self.problem, self.device)
        likes = outputs.likes(self.problem, self.problem.inputs(self.device, 0))
        self.answers = Layout(likes)
        few = described is not None and any(torch.Size(shape).numel() < FEW for shape, _ in likes)
        self.output_bytes = sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in likes)
        return Opened(
            set_bytes=self.layout.nbytes,
            output_bytes=self.output_bytes,
            answer_bytes=self.answers.nbytes,
            free_bytes=int(self.clock.free_bytes()),
            few=few,
        )

    def attach(self, cell: str, sets: int, pid: int, path: str = "") -> Attached:
        """Memory for a cell's input sets: the file, or new device memory."""
        inputs = sets * self.layout.nbytes
        nbytes = inputs + (self.answers.nbytes if cell == PROBLEM else 0)
        if self.kind == "cuda":
            self.owned[cell] = device_memory.allocate(nbytes)
            memory = device_memory.as_bytes(self.owned[cell], nbytes)
        else:
            memory = mapped(path, nbytes)
        self.sets[cell] = self.layout.sets(memory, sets)
        if cell == PROBLEM:
            self.answer = self.answers.sets(memory[inputs:], 1)[0].tensors
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
        if isinstance(self.problem, Brought):  # its process has drawn them
            return self.sets[PROBLEM][index]
        return self.problem.inputs(self.device, (seed + index * 1_000_003) % 2**SEED_BITS, distribution)

    def write(
        self,
        cell: str,
        seed: int,
        calls: int,
        distribution: Distribution = "normal",
        first: int = 0,
        odd: Mapping[str, Distribution] | None = None,
    ) -> Nothing:
        """Fresh values for some input sets of a cell, different in each. first: of them. odd: those of another distribution."""
        kinds = _kinds(odd)
        self.forget()
        step = max(1, DRAWN_BYTES // self.layout.nbytes)
        # One copy of many tensors: a launch for each takes the host longer than the copy.
        for begin in range(first, first + calls, step):
            some = range(begin, min(begin + step, first + calls))
            drawn = (self._values(seed, index, kinds.get(index, distribution)) for index in some)
            fresh = [tensor for one in drawn for tensor in one.tensors]
            copy_all([tensor for index in some for tensor in self.sets[cell][index].tensors], fresh)
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
        copies, refused = self._copies(cell, calls)
        self.taken = [one[0] if len(one) == 1 else tuple(one) for one in copies]
        return Taken(refused=refused)

    def _copies(self, cell: str, calls: list[list[dict[str, Any]]]) -> tuple[list[list[torch.Tensor]], str]:
        """The outputs of some calls; else why they cannot be read."""
        try:
            reader, copies = self.readers[cell], []
            for claims in calls:
                outputs = [Output.model_validate(one) for one in claims]
                reader.must_have_room(outputs)
                copies.append([reader.copy(one) for one in outputs])
        except (ValueError, OSError, RuntimeError, OverflowError, MemoryError) as error:
            return [], f"{type(error).__name__}: {error}"
        self.clock.synchronize()
        return copies, ""

    def judge(
        self,
        cell: str,
        seed: int,
        indices: list[int],
        thorough: bool = False,
        distribution: Distribution = "normal",
        odd: Mapping[str, Distribution] | None = None,
    ) -> Judged:
        """Compares the taken outputs with the references of the calls' inputs. indices: of these calls. odd: as in `write`."""
        readings, changed, kinds = [], False, _kinds(odd)
        for index, out in zip(indices, self.taken, strict=True):
            values = self._values(seed, index, kind := kinds.get(index, distribution))
            readings.append(measure(out, self._reference(index, values, seed, thorough, kind)))
            now = self.sets[cell][index].tensors
            changed |= not all(same(a, b) for a, b in zip(now, values.tensors, strict=True))
        return Judged(readings=readings, inputs_changed=changed)

    def show(self, number: int) -> Taken:
        """Copies the outputs of one of the taken calls to where the problem's process sees them."""
        outs = outputs.as_tuple(self.taken[number])
        if [(one.shape, one.dtype) for one in outs] != [(one.shape, one.dtype) for one in self.answer]:
            return Taken(refused="they are not of the reference's shapes and dtypes")
        for place, out in zip(self.answer, outs, strict=True):
            place.copy_(out)
        self.clock.synchronize()
        return Taken()

    def _reference(
        self, index: int, values: Inputs, seed: int, thorough: bool, distribution: Distribution
    ) -> Reference:
        if isinstance(self.problem, Brought):
            return Given(self.problem, values, self.expected[index], self.pool_of_few)
        return Reference(self.problem, values, seed, thorough, distribution)

    def expect(
        self,
        index: int,
        plain: list[dict[str, Any]],
        exact: list[dict[str, Any]],
        nudged: Sequence[dict[str, Any]] = (),
    ) -> Taken:
        """Copies correct values for an input set out of the problem's process."""
        assert isinstance(self.problem, Brought)
        copies, refused = self._copies(PROBLEM, [plain, exact, list(nudged)])
        if not refused:
            self.expected[index] = values = Values(*copies)
            refused = values.why_not(self.problem.likes)
        return Taken(refused=refused)

    def forget(self) -> Nothing:
        """Forgets the expected values."""
        self.expected.clear()
        return Nothing()

    def pool(self) -> Nothing:
        """Adds the expected values to those that outputs of few elements are judged by."""
        for values in self.expected.values():
            into_pool(self.pool_of_few, values.pieces())
        return Nothing()

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


def _kinds(odd: Mapping[str, Distribution] | None) -> dict[int, Distribution]:
    """Input set -> its distribution. JSON has no other names than texts."""
    return {int(index): kind for index, kind in (odd or {}).items()}
