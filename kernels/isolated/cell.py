"""A cell: one kernel in a process of its own. It runs batches on command, and says where their outputs lie.

Nothing that it says is believed: the parent times its batches, and the trusted process reads its outputs.
"""

from __future__ import annotations

import ctypes
import gc
from time import perf_counter_ns
from typing import Any

import torch

from kernels.catalog import Unsupported, get_kernel, load
from kernels.child import into, outputs
from kernels.child.captured import Captures
from kernels.child.environment import card
from kernels.contract.isolation import Armed, Called, Segments
from kernels.contract.replies import Nothing
from kernels.isolated import device_memory
from kernels.isolated.brought import Brought
from kernels.isolated.memory import Layout, mapped, outputs_of
from kernels.isolated.serving import Pipes
from kernels.settings import settled
from kernels.workload import Workload

NOT_SHARED = (
    "isolated, its outputs lie in memory that CUDA does not share between processes: allocate them with torch.empty, "
    "without expandable segments"
)
PR_SET_PTRACER, ANYBODY = 0x59616D61, ctypes.c_ulong(-1)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, LARGE = -1, -3, 2**25
"""Options of mallopt(3): memory of a batch's outputs stays in the process for the next batch."""


class Cell:
    """One kernel on one workload."""

    def __init__(self, kind: str, pipes: Pipes) -> None:
        self.kind, self.pipes = kind, pipes
        self.device = "cuda:0" if kind == "cuda" else "cpu"
        self.outs: list[Any] = []
        self.graph: Any = None
        self.synchronize: Any = torch.cuda.synchronize if kind == "cuda" else lambda: None
        if kind == "cuda":
            self.captures = Captures()
            self.one = torch.ones(1, device="cuda").add_(1)
            self.synchronize()
        else:
            libc = ctypes.CDLL(None)
            libc.prctl(PR_SET_PTRACER, ANYBODY, 0, 0, 0)  # where only ancestors may read a process of the same user
            libc.mallopt(M_MMAP_THRESHOLD, LARGE)
            libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)

    def open(
        self, workload: dict[str, Any], arm: str, memory: str, sets: int, brought: dict[str, Any] | None = None
    ) -> Nothing:
        """Loads the kernel, and maps its input sets: a path, or a handle in hex. brought: of a problem that came with its
        kernels, its description and the seed of what is drawn once."""
        asked = Workload(**workload)
        problem = Brought.of(asked.problem, brought["described"]) if brought else asked.problem
        layout = Layout.of(problem, self.device)
        nbytes = sets * layout.nbytes
        if self.kind == "cuda":
            shared = device_memory.as_bytes(device_memory.open_handle(bytes.fromhex(memory)), nbytes)
        else:
            shared = mapped(memory, nbytes)
        self.sets = layout.sets(shared, sets)
        loaded = load(get_kernel(problem.name, arm))
        self.call = settled(loaded.call, loaded.decides.chosen(asked.key, *card(self.kind))[0])
        if brought and isinstance(problem, Brought):
            torch.set_grad_enabled(False)
            self.call = problem.calling(loaded.call(brought["weights"], self.device))
        elif into.wants_out(self.call):
            likes = outputs.likes(problem, self.sets[0])
            self.call = into.returning(self.call, lambda *tensors: outputs.new(likes, tensors[0].device))
        return Nothing()

    def _run(self, index: int) -> Any:
        inputs = self.sets[index]
        return self.call(*inputs.tensors, **inputs.options)

    def run(self, calls: int, first: int = 0) -> Called:
        """One call on each of some input sets. first: of them."""
        self.forget()
        self.outs = [self._run(index) for index in range(first, first + calls)]
        self.synchronize()
        found = [outputs_of(out) for out in self.outs]
        return Called(outputs=[claims for claims, _ in found], wrong_kind=next((why for _, why in found if why), ""))

    def capture(self, calls: int) -> Nothing:
        """Captures one call on each of the first input sets as a graph, and replays it: the first replay of a graph takes longer.
        Without calls: the addition of one number. Raises CallsOverlap, NotCaptured."""
        self.forget()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._run(0)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            if not calls:
                self.one.add_(1)
            self.outs = self.captures.in_turn(self._run, range(calls), torch.cuda.current_stream().cuda_stream)
        self.graph = graph
        graph.replay()
        self.synchronize()
        return Nothing()

    def arm(self, calls: int) -> None:
        """Prepares a batch: replies `Armed`. Then it waits for the word to go, runs the batch and replies `Batch`."""
        if not self.graph:
            self.forget()
        fixed = _addresses(self.outs) if self.graph else []
        pipes, ready = self.pipes, _joined(fixed)
        pipes.answer(ok=Armed(addresses=fixed).model_dump())
        pipes.commands.readline()
        begin = perf_counter_ns()
        if self.graph:
            self.graph.replay()
        else:
            call, sets, outs = self.call, self.sets, self.outs
            for index in range(calls):
                inputs = sets[index]
                outs.append(call(*inputs.tensors, **inputs.options))
        self.synchronize()
        own_ns, found = perf_counter_ns() - begin, ready or _joined(_addresses(self.outs))
        # A model would take longer to write than the clock may wait.
        pipes.answers.write(
            b'{"token":"%s","ok":{"addresses":[%s],"own_ns":%d}}\n' % (pipes.token.encode(), found, own_ns)
        )

    def segments(self) -> Segments:
        """The device memory that holds the outputs."""
        found: dict[int, str] = {}
        ends: dict[int, int] = {}
        for address in _addresses(self.outs):
            if not any(start <= address < end for start, end in ends.items()):
                start, size = device_memory.allocation(address)
                try:
                    found[start] = device_memory.handle_of(start).hex()
                except device_memory.DriverError as error:
                    if error.code not in (device_memory.INVALID_VALUE, device_memory.NOT_SUPPORTED):
                        raise
                    raise Unsupported(NOT_SHARED) from error
                ends[start] = start + size
        return Segments(segments=list(found.items()))

    def forget(self) -> Nothing:
        """Frees outputs and graph."""
        self.graph = None
        self.outs = []
        if self.kind == "cuda":
            gc.collect()
        return Nothing()


def _addresses(outs: list[Any]) -> list[int]:
    return [one.data_ptr() for out in outs for one in (out if isinstance(out, tuple | list) else (out,))]


def _joined(addresses: list[int]) -> bytes:
    return ",".join(map(str, addresses)).encode()
