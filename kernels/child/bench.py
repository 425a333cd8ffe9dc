"""The bench: kernels, inputs and a clock, in the measuring child. It executes commands and reports raw readings.

It decides nothing: the parent owns seeds, order, number of calls, statistics and verdicts. Every command takes plain
data and returns its model in kernels/contract/replies.py, so the parent can drive it through a pipe, and the simulator
can replace it.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from time import perf_counter_ns, sleep
from typing import Any

import torch

from kernels.catalog import LoadedKernel, get_kernel, load
from kernels.child import calibrate, into, launches, outputs, poison
from kernels.child.clock import Block, CpuClock, CudaClock, Graph
from kernels.child.guard import Guard, memory_in_use
from kernels.child.probe import next_seed, probe
from kernels.child.reference import Reference, measure, with_facts
from kernels.child.rewrite import rewrite
from kernels.child.runtime import CudaRuntime
from kernels.contract.replies import (
    Captured,
    CeilingSamples,
    Compiled,
    Loaded,
    Nothing,
    Prepared,
    Probed,
    Profiled,
    Rechecked,
    TimedBlock,
    Verified,
)
from kernels.operations.base import Distribution, Inputs, Like
from kernels.workload import Workload

ROTATION = 5
"""The input sets together are this many times the cache: no call finds its inputs there."""
MEMORY_SHARE = 0.25
"""Share of the free memory for input sets, at most,"""
KEEP_SHARE = 0.05
"""and for outputs kept to be checked after the rounds."""
MAX_SETS = 128
LATE_S = 0.003
"""Time for late writes to show after a call has returned."""
TRAP_GATE_NS = 4_000_000
"""Gate length: the checked call is queued before its inputs arrive."""


class Bench:
    """One device, one workload at a time."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.device = "cuda:0" if kind == "cuda" else "cpu"
        self.clock: Any = CudaClock(CudaRuntime()) if kind == "cuda" else CpuClock()
        self.loaded: dict[str, LoadedKernel] = {}
        self.guard = Guard(kind, self.clock)
        self._forget()

    def _forget(self) -> None:
        self.sets: list[tuple[int, Inputs]] = []
        self.references: dict[int, Reference] = {}
        self.graphs: dict[str, Graph] = {}
        self.kept: list[tuple[str, int, Any, dict[str, Any]]] = []
        self.grown: dict[str, list[tuple[int, int]]] = {}
        self.cursor = 0
        self.likes: tuple[Like, ...] = ()

    # --- one workload ---------------------------------------------------------------------------------------------

    def open(self, workload: dict[str, Any]) -> Nothing:
        """Makes a workload the current one. Forgets the previous one."""
        self._forget()
        if self.kind == "cuda":
            torch.cuda.empty_cache()
        if "torch._dynamo" in sys.modules:
            sys.modules["torch._dynamo"].reset()  # else the second shape compiles dynamic, the ninth runs eager
        self.workload = Workload(**workload)
        self.problem = self.workload.problem
        return Nothing()

    def _kernel(self, arm: str) -> LoadedKernel:
        name = f"{self.problem.name}/{arm}"
        if name not in self.loaded:
            kernel = load(get_kernel(self.problem.name, arm))
            if into.wants_out(kernel.call):
                kernel.call = into.returning(kernel.call, self._new_output)
            self.loaded[name] = kernel
        return self.loaded[name]

    def _new_output(self, *tensors: torch.Tensor) -> Any:
        """What a kernel of the current workload writes into: a new tensor, or a tuple of them."""
        self.likes = self.likes or outputs.likes(self.problem, Inputs(tensors, {}))
        device = tensors[0].device
        made = tuple(torch.empty(shape, dtype=dtype, device=device) for shape, dtype in self.likes)
        return made if len(made) > 1 else made[0]

    def _run(self, arm: str, inputs: Inputs) -> Any:
        return self._kernel(arm).call(*inputs.tensors, **inputs.options)

    def load(self, arm: str) -> Loaded:
        """Loads a kernel's file."""
        kernel = self._kernel(arm)
        self.guard.claim_processes(arm)
        return Loaded(sha256=kernel.sha256, source=kernel.source)

    def compile(self, arm: str, seed: int) -> Compiled:
        """Times the first call (seconds). Measures on a second call the memory without its inputs (bytes), and reports what
        Triton says of the launched kernels."""
        inputs = self.problem.inputs(self.device, seed)
        self.clock.synchronize()
        start = perf_counter_ns()
        self._run(arm, inputs)
        self.clock.synchronize()
        compile_s = (perf_counter_ns() - start) / 1e9
        self.guard.claim_processes(arm)
        return Compiled(compile_s=compile_s, **self._second_call(arm, inputs))

    def _second_call(self, arm: str, inputs: Inputs) -> dict[str, Any]:
        if self.kind != "cuda":
            return {"peak_memory_bytes": None}
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with launches.launched() as handles:
            self._run(arm, inputs)
        self.clock.synchronize()
        return {"peak_memory_bytes": torch.cuda.max_memory_allocated() - before} | launches.facts(handles)

    # --- correctness ----------------------------------------------------------------------------------------------

    def _reference(self, seed: int, thorough: bool, distribution: Distribution) -> Reference:
        if seed not in self.references:
            inputs = self.problem.inputs(self.device, seed, distribution)
            self.references[seed] = Reference(self.problem, inputs, seed, thorough, distribution)
        return self.references[seed]

    def verify(self, arm: str, seed: int, thorough: bool, distribution: Distribution = "normal") -> Verified:
        """Two calls on fresh inputs; compares the first with the reference."""
        reference = self._reference(seed, thorough, distribution)
        inputs = Inputs(tuple(torch.zeros_like(t) for t in reference.inputs.tensors), reference.inputs.options)
        out, early, flags = self._trapped(arm, inputs, reference.inputs)
        reading = measure(early, reference)
        unwritten = [poison.count(one) for one in outputs.as_tuple(early)]
        reading = with_facts(reading, unwritten=unwritten, late=flags.pop("late"))
        shared, deterministic = False, None
        if not reading.get("wrong_kind"):
            shared, deterministic = self._called_again(arm, reference.inputs, out, early, unwritten)
        self.guard.claim_processes(arm)
        busy = self.guard.busy(arm)
        return Verified(reading=reading, shared=shared, deterministic=deterministic, busy=busy, **flags)

    def _called_again(self, arm: str, values: Inputs, out: Any, early: Any, unwritten: list[int]) -> tuple[bool, bool]:
        """Makes a second call: (shared, deterministic), from the first one's output and its early copy. Poisons all
        outputs."""
        for one in outputs.as_tuple(out):
            poison.fill(one)
        again = outputs.plain(self._run(arm, Inputs(tuple(t.clone() for t in values.tensors), values.options)))
        self.clock.synchronize()
        counted = [one for one in outputs.as_tuple(out) if poison.is_counted(one)]
        pairs = zip(outputs.as_tuple(again), unwritten, strict=True)
        shared = any(poison.count(one) < one.numel() for one in counted) or any(poison.count(a) > n for a, n in pairs)
        shared = shared or outputs.share_memory(out, again)
        deterministic = outputs.equal(early, again)
        for right in (out, early, again):  # freed memory must not look like the next kernel's work
            for one in outputs.as_tuple(right):
                poison.fill(one)
        return shared, deterministic

    def _trapped(self, arm: str, inputs: Inputs, values: Inputs) -> tuple[Any, Any, dict[str, Any]]:
        """One call: inputs are written just before it and the output is copied just after it, on the current stream.
        Work on another stream, or later, is detected.

        Returns the output, the copy, and {"late": per output, "inputs_changed"}.
        """
        with poison.in_new_memory(outputs.likes(self.problem, inputs), self.device):
            self.clock.synchronize()
            if self.kind == "cuda":
                self.clock.gate(TRAP_GATE_NS)
            rewrite(inputs, values)
            out = outputs.plain(self._run(arm, inputs))
        early = outputs.clone(out)
        self.clock.synchronize()
        sleep(LATE_S)
        late = outputs.changed(early, out)
        changed = not all(torch.equal(a, b) for a, b in zip(inputs.tensors, values.tensors, strict=True))
        return out, early, {"late": late, "inputs_changed": changed}

    def forget_references(self) -> Nothing:
        self.references.clear()
        return Nothing()

    # --- timing ---------------------------------------------------------------------------------------------------

    def prepare(self, seeds: list[int], rotate: bool) -> Prepared:
        """Makes input sets, one per seed: together ROTATION times the cache. With `rotate` off: one."""
        self.sets.clear()
        first = self.problem.inputs(self.device, seeds[0])
        wanted = 1 + math.ceil(ROTATION * self.clock.cache_bytes / first.nbytes)
        room = int(MEMORY_SHARE * self.clock.free_bytes() / first.nbytes)
        count = max(2, min(wanted, room, MAX_SETS, len(seeds))) if rotate else 1
        self.sets = [(seeds[0], first)]
        self.sets += [(seed, self.problem.inputs(self.device, seed)) for seed in seeds[1:count]]
        if self.kind == "cuda" and count < wanted and rotate:
            self.clock.runtime.evict()  # allocates now, not behind the first gate
        self.clock.synchronize()
        return Prepared(sets=len(self.sets), covered=count >= wanted or not rotate, input_bytes=first.nbytes)

    def refill(self, index: int, seed: int) -> Nothing:
        """Writes fresh values into one input set, in place (graphs hold its addresses)."""
        index %= len(self.sets)
        fresh = self.problem.inputs(self.device, seed)
        rewrite(self.sets[index][1], fresh)
        self.sets[index] = (seed, self.sets[index][1])
        self.clock.synchronize()
        return Nothing()

    def _call(self, arm: str) -> Any:
        call, sets = self._kernel(arm).call, self.sets
        count = len(sets)

        def run(index: int) -> Any:
            inputs = sets[index % count][1]
            return call(*inputs.tensors, **inputs.options)

        return run

    def block(
        self,
        arm: str,
        calls: int,
        gate_ns: int = 0,
        flush: bool = False,
        keep: int | None = None,
        rest_ns: int = 0,
        untimed: bool = True,
    ) -> TimedBlock:
        """`calls` timed calls of an arm on rotating input sets, after an `untimed` call, a rest and a spin gate.

        keep: position of the call whose output is kept for `recheck`.
        """
        call = self._call(arm)
        if untimed:
            call(self.cursor)
        before = memory_in_use(self.kind)
        indices = range(self.cursor + 1, self.cursor + 1 + calls)
        self.cursor = indices[-1] + 1
        self.clock.synchronize()
        self.clock.rest(rest_ns)
        block = self.clock.block(call, indices, gate_ns, flush, keep)
        if keep is not None:
            self._keep(arm, indices[keep], block.kept)
            self._trap(arm)
        elif before is not None:
            self.grown.setdefault(arm, []).append(((memory_in_use(self.kind) or 0) - before, calls))
        self.guard.claim(arm)
        return _timed(block)

    def _trap(self, arm: str) -> None:
        """One more call like the timed ones, on the next input set, refilled in place; its output is kept for
        `recheck`."""
        index, self.cursor = self.cursor, self.cursor + 1
        seed, inputs = self.sets[index % len(self.sets)]
        seed = next_seed(seed)
        values = self.problem.inputs(self.device, seed)
        _, early, flags = self._trapped(arm, inputs, values)
        if flags["inputs_changed"]:
            rewrite(inputs, values)
        self.sets[index % len(self.sets)] = (seed, inputs)
        if self._has_room(early):
            self.kept.append((arm, seed, early, flags))

    def e2e(self, arm: str, calls: int, keep: int | None = None, rest_ns: int = 0, untimed: bool = True) -> TimedBlock:
        """`calls` calls on rotating input sets, each timed by the host until the device has finished."""
        call = self._call(arm)
        if untimed:
            call(self.cursor)
        indices = range(self.cursor + 1, self.cursor + 1 + calls)
        self.cursor = indices[-1] + 1
        self.clock.synchronize()
        self.clock.rest(rest_ns)
        block = self.clock.host_block(call, indices, keep)
        if keep is not None:
            self._keep(arm, indices[keep], block.kept)
            self._trap(arm)
        return _timed(block)

    def sustained(self, arm: str, calls: int, lead: int, chunks: int, graph: str = "") -> TimedBlock:
        """Back to back: `lead` untimed chunks of about `calls` calls, then `chunks` timed ones; by its graph if it has
        one."""
        captured = self.graphs.get(graph or arm)
        if captured:
            nodes = len(captured.indices)
            block = self.clock.sustained(captured.launch, nodes, max(1, round(calls / nodes)), lead, chunks)
        else:
            block = self.clock.sustained(self._call(arm), 1, calls, lead, chunks)
        return _timed(block)

    def capture(self, arm: str, graph: str = "") -> Captured:
        """Captures an arm anew on every input set as one CUDA graph. graph: its name, if it is not the arm's."""
        self.graphs.pop(graph or arm, None)
        self.graphs[graph or arm] = self.clock.capture(self._call(arm), range(len(self.sets)))
        return Captured(nodes=len(self.sets))

    def drop_graphs(self) -> Nothing:
        self.graphs.clear()
        return Nothing()

    def replay(
        self,
        arm: str,
        replays: int,
        gate_ns: int = 0,
        flush: bool = False,
        keep: int | None = None,
        graph: str = "",
        rest_ns: int = 0,
    ) -> TimedBlock:
        """`replays` timed replays of an arm's graph, after poisoning the outputs, a rest and one untimed replay."""
        self.clock.rest(rest_ns)
        captured = self.graphs[graph or arm]
        block = captured.block(replays, gate_ns, flush, keep)
        if keep is not None:
            self._keep(arm, keep, block.kept)
            self._trap_graph(arm, captured, keep)
        return _timed(block)

    def _trap_graph(self, arm: str, captured: Graph, keep: int) -> None:
        """One more replay, on an input set with values newer than the capture: reveals work done during the capture."""
        index = keep % len(self.sets)
        seed = next_seed(self.sets[index][0])
        self.refill(index, seed)
        captured.poison()
        captured.launch()
        self.clock.synchronize()
        self._keep(arm, index, captured.outputs[index])

    def _keep(self, arm: str, index: int, out: Any) -> None:
        """Keeps a copy of a timed call's output, with the seed of its inputs, if it is small enough."""
        if self._has_room(out := outputs.plain(out)):
            self.kept.append((arm, self.sets[index % len(self.sets)][0], outputs.clone(out), {}))

    def _has_room(self, out: Any) -> bool:
        return not (size := outputs.nbytes(out)) or size < KEEP_SHARE * self.clock.free_bytes()

    def recheck(self) -> Rechecked:
        """Compares the kept outputs of timed calls with the reference."""
        readings = []
        changed = [arm for arm, _, _, flags in self.kept if flags.get("inputs_changed")]
        for arm, seed, out, flags in self.kept:
            reference = Reference(self.problem, self.problem.inputs(self.device, seed), seed, thorough=False)
            late = flags.get("late", [False] * len(outputs.as_tuple(out)))
            readings.append((arm, with_facts(measure(out, reference), late=late)))
        self.kept.clear()
        grown, self.grown = self.grown, {}
        return Rechecked(readings=readings, changed_inputs=changed, grown=grown)

    def probe(self, arm: str, seeds: list[int], sights: int) -> Probed:
        """Calls on known and on new inputs, on the first input set: see kernels/child/probe.py."""
        # Every probe uses the prepared set: new tensors may reuse the addresses of old ones, written as often.
        inputs = self.sets[0][1]
        call = partial(self._kernel(arm).call, *inputs.tensors, **inputs.options)

        def timed() -> float:
            self.clock.synchronize()
            gate = TRAP_GATE_NS if self.kind == "cuda" else 0
            return self.clock.block(lambda _: call(), range(1), gate, False, None).ticks_ns[0]

        fresh = partial(self.problem.inputs, self.device)
        times = probe(timed, call, inputs, fresh, seeds, sights, self.problem.scalable)
        self.guard.claim_processes(arm)
        return Probed(busy=self.guard.busy(arm), **times)

    def release(self) -> Nothing:
        """Frees graphs and input sets."""
        self.graphs.clear()
        self.sets.clear()
        return Nothing()

    # --- cross-check ----------------------------------------------------------------------------------------------

    def profile(self, arm: str, seed: int) -> Profiled:
        """Profiler spans and event times of the same calls: see profiler.profile."""
        from kernels.child import profiler  # imported late: the import is slow and needed only after all timing

        inputs = self.problem.inputs(self.device, seed)
        return profiler.profile(self.clock, lambda: self._run(arm, inputs))

    def calibrate(self) -> CeilingSamples:
        """Ceilings of this device, before any kernel is loaded: see calibrate.probe."""
        found = calibrate.probe(self.clock)
        if self.kind == "cuda":
            torch.cuda.empty_cache()
        return found


def _timed(block: Block) -> TimedBlock:
    return TimedBlock(
        ticks_ns=block.ticks_ns,
        enqueue_ns=block.enqueue_ns,
        gate_ns=block.gate_ns,
        gated=block.gated,
        sm_mhz=block.sm_mhz,
    )
