"""The bench: kernels, inputs and a clock, in the measuring child. It executes commands and reports raw readings.

It decides nothing: the parent owns seeds, order, number of calls, statistics and verdicts. Every command takes plain
data and returns its model in kernels/contract/replies.py, so the parent can drive it through a pipe, and the simulator
can replace it.
"""

from __future__ import annotations

import gc
import math
import secrets
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from kernels.analysis.blocks import MAX_CALLS
from kernels.child import calibrate, checks, hooks, host_memory, outputs
from kernels.child.arms import Arms
from kernels.child.clock import Block, CpuClock, CudaClock, Graph
from kernels.child.guard import Guard
from kernels.child.held import EarlyCopy, Held
from kernels.child.kept import Kept
from kernels.child.probe import probe, timer
from kernels.child.reference import Reference
from kernels.child.references import References
from kernels.child.runtime import CudaRuntime
from kernels.child.sets import Sets, at_most, covering
from kernels.child.tasks import memory_in_use
from kernels.contract.replies import (
    Captured,
    CeilingSamples,
    Compiled,
    Loaded,
    Nothing,
    Prepared,
    Probed,
    Profiled,
    Quiet,
    Rechecked,
    TimedBlock,
    Verified,
    Watched,
)
from kernels.operations.base import Distribution, Inputs
from kernels.workload import Workload

MEMORY_SHARE = 0.25
"""Share of the free memory for input sets, and for the outputs of a block, at most."""
Odd = tuple[int, Distribution]
"""Position of a call in its block, and the distribution of its inputs."""
YOUNG = 1
"""The generation of Python's collector up to which garbage is freed before memory is read: what the last blocks left."""


class Bench:
    """One device, one workload at a time."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.device = "cuda:0" if kind == "cuda" else "cpu"
        self.clock: Any = CudaClock(CudaRuntime()) if kind == "cuda" else CpuClock()
        if kind == "cpu":
            host_memory.keep_freed()
        self.guard = Guard(kind, self.clock)
        self.arms = Arms(kind, self.guard)
        self._forget()
        self.guard.near.add([("the bench", self), ("the arms", self.arms)])

    def _forget(self) -> None:
        self.sets = Sets(self._drawn)
        self.kinds: dict[int, Distribution] = {}
        """Seeds whose values are of another distribution."""
        self.references = References(self.device)
        self.graphs: dict[str, Graph] = {}
        self.kept = Kept(self.clock.free_bytes)
        self.grown: dict[str, list[tuple[int, int]]] = {}
        self.held: Held | None = None
        self.ahead = host_memory.Ahead()
        self.room, self.output_bytes = 0, 1
        """Memory for the outputs of one block, and what those of one call keep of it, in bytes."""
        self.arms.forget()

    def _drawn(self, seed: int) -> Inputs:
        return self.problem.inputs(self.device, seed, self.kinds.get(seed, "normal"))

    # --- one workload ---------------------------------------------------------------------------------------------

    def open(self, workload: dict[str, Any]) -> Nothing:
        """Makes a workload the current one. Forgets the previous one."""
        self._forget()
        if self.kind == "cuda":
            torch.cuda.empty_cache()
        if "torch._dynamo" in sys.modules:
            sys.modules["torch._dynamo"].reset()  # else the second shape compiles dynamic, the ninth runs eager
        self.problem = self.arms.open(Workload(**workload))
        return Nothing()

    def load(self, arm: str) -> Loaded:
        """Loads a kernel's file."""
        return self.arms.load(arm)

    def compile(self, arm: str, seed: int) -> Compiled:
        """Times the first call (seconds). Measures on a second call the memory without its inputs (bytes), and reports what
        Triton says of the launched kernels."""
        self.references.make_room()
        return self.arms.compile(arm, self.problem.inputs(self.device, seed), self.clock)

    def quiet(self, arm: str) -> Quiet:
        """What works on after calls of this arm. It is asked before the first check: beside a busy thread of Python, a check
        takes minutes, since each operation waits for the interpreter's lock."""
        return Quiet(busy=self.guard.busy(arm))

    def watch(self, arm: str = "") -> Watched:
        """Compares everything that calls may reach. arm: which ran since the last comparison."""
        changes = [*self.sets.changes(), *self.guard.changes(arm), *self.guard.watched()]
        return Watched(changes=changes, threads=self.guard.leaves_threads(), must_replace=self.guard.must_replace)

    # --- correctness ----------------------------------------------------------------------------------------------

    def verify(
        self, arm: str, seed: int, thorough: bool, distribution: Distribution = "normal", look: bool = False
    ) -> Verified:
        """Two calls on fresh inputs; compares the first with the reference. thorough: also whether its output outlives later
        calls. look: for work that is left running, which takes 20 ms and more."""
        reference = self.references.get(self.problem, seed, thorough, distribution)
        run, later = partial(self.arms.run, arm), checks.LATER_CALLS if thorough else 0
        found = checks.two_calls(run, reference, self.problem, self.clock, self.device, later)
        self.guard.claim_processes(arm)
        return Verified(busy=self.guard.busy(arm) if look else [], **found)

    def _trapped(self, arm: str, inputs: Inputs, values: Inputs) -> tuple[Any, Any, dict[str, Any]]:
        return checks.trapped(partial(self.arms.run, arm), inputs, values, self.problem, self.clock, self.device)

    def forget_references(self) -> Nothing:
        self.references.clear()
        return Nothing()

    # --- timing ---------------------------------------------------------------------------------------------------

    def prepare(self, seeds: list[int], sets: int) -> Prepared:
        """Makes input sets. sets: how many; 0: as many as are together ROTATION times the cache."""
        self._let_go()
        self.sets.clear()
        nbytes = (one := self.problem.inputs(self.device, seeds[0])).nbytes
        room = MEMORY_SHARE * self.clock.free_bytes()
        wanted = sets or covering(nbytes, self.clock.cache_bytes)
        self.sets.make(seeds[: at_most(wanted, nbytes, room)])
        declared = sum(math.prod(shape) * dtype.itemsize for shape, dtype in outputs.likes(self.problem, one))
        self.output_bytes = max(self.output_bytes, declared)
        self.room = int(MEMORY_SHARE * self.clock.free_bytes())
        if self.kind == "cpu":
            self.ahead.take(declared * min(MAX_CALLS, self.most_calls))
        self.clock.evict()  # allocates now, not behind the first gate
        self.clock.synchronize()
        return Prepared(sets=len(self.sets), covered=len(self.sets) >= wanted, input_bytes=nbytes)

    @property
    def most_calls(self) -> int:
        """Calls whose outputs fit into memory together: at least 1."""
        return max(1, self.room // self.output_bytes)

    def _renew(self, seeds: Sequence[int]) -> None:
        """Draws new values for the first input sets. Without seeds the values stay."""
        self.sets.renew(seeds)

    def _call(self, arm: str) -> Any:
        call, sets = self.arms.call(arm), self.sets.inputs
        count = len(sets)

        def run(index: int) -> Any:
            inputs = sets[index % count]
            return call(*inputs.tensors, **inputs.options)

        return run

    def block(
        self,
        arm: str,
        calls: int,
        gate_ns: int = 0,
        flush: bool = False,
        rest_ns: int = 0,
        untimed: bool = True,
        at_once: bool = False,
        seeds: Sequence[int] = (),
        early: bool = False,
        odd: Odd | None = None,
    ) -> TimedBlock:
        """`calls` timed calls of an arm, each on its own input set (unless there are fewer), after an `untimed` call, new
        values, an eviction of the cache, a rest and a spin gate. at_once: the new values come last; on a GPU behind the gate, so
        that they are there only when the calls are queued. seeds: of the new values, which are drawn after the untimed call;
        without them the values stay. early: an output is copied right after its call, for `keep`. odd: one call gets values of
        another distribution.

        All outputs live until the next command: the parent then chooses which one to `keep`.
        """
        with hooks.put_back():
            held, call = self._before(
                arm, calls := min(calls, self.most_calls), seeds, rest_ns, untimed, at_once, early, odd
            )
            more: dict[str, Any] = {"after": held.early.look} if held.early else {}
            if at_once and self.kind == "cuda":
                more["first"] = partial(self._write, range(calls))
            return self._held(held, self.clock.block(call, range(calls), gate_ns, flush, **more))

    def e2e(
        self, arm: str, calls: int, rest_ns: int = 0, untimed: bool = True, seeds: Sequence[int] = ()
    ) -> TimedBlock:
        """`calls` calls like those of `block`, each timed by the host until the device has finished."""
        with hooks.put_back():
            held, call = self._before(arm, calls := min(calls, self.most_calls), seeds, rest_ns, untimed)
            return self._held(held, self.clock.host_block(call, range(calls)))

    def _before(
        self,
        arm: str,
        calls: int,
        seeds: Sequence[int],
        rest_ns: int,
        untimed: bool,
        at_once: bool = False,
        early: bool = False,
        odd: Odd | None = None,
    ) -> tuple[Held, Any]:
        """What comes before timed calls: (what will be held, the call)."""
        self._let_go()
        if self.kind == "cpu":
            self.ahead.keep()
        call, indices = self._call(arm), range(min(calls, len(self.sets)))
        held = Held(arm, calls + untimed, self._memory(), odd=self._odd(seeds, odd))
        if untimed:
            held.untimed = call(0)
        if early and self.kept.has_room(EarlyCopy.MOST * self.output_bytes):
            held.early = EarlyCopy(calls, held.untimed)
        self._be_alone()
        self._renew(seeds)
        if at_once:
            self._empty_cache()
        else:
            self._write(indices)
        self.clock.synchronize()
        self.clock.rest(rest_ns)
        if at_once and self.kind == "cpu":
            self.sets.write(indices)
        return held, call

    def _odd(self, seeds: Sequence[int], odd: Odd | None) -> int | None:
        """Makes the values of one of these seeds those of another distribution. Its position."""
        if odd is None or not seeds:
            return None
        position, kind = odd[0] % len(seeds), odd[1]
        self.kinds[seeds[position]] = kind
        return position

    def _be_alone(self) -> None:
        """From here to the end of the calls nothing of a kernel runs by itself."""
        hooks.take_away()

    def _memory(self) -> int | None:
        """Memory in use, in bytes, without what Python frees when it next collects garbage."""
        gc.collect(YOUNG)
        return memory_in_use(self.kind)

    def _write(self, indices: Sequence[int]) -> None:
        """Writes new values into input sets, and none of them stays in the cache; one buffer stays there."""
        self.sets.write(indices)
        self._empty_cache()

    def _empty_cache(self) -> None:
        if len(self.sets) > 1:
            self.clock.evict()

    def _held(self, held: Held, block: Block) -> TimedBlock:
        held.outputs, held.seeds = block.outputs, [self.sets.seed(index) for index in range(len(block.outputs))]
        self.held = held
        if held.graph is None and held.outputs:
            self.output_bytes = max(self.output_bytes, outputs.kept_bytes(held.outputs[-1]))
        self.guard.claim(held.arm)
        return block.reply()

    def _let_go(self) -> None:
        """Poisons and frees the outputs of the last block: memory must not hold right results when it is used again."""
        if (held := self.held) is None:
            return
        self.held = None
        held.let_go({tensor.untyped_storage().data_ptr() for one in self.sets.inputs for tensor in one.tensors})
        if held.memory is not None and held.graph is None and not held.kept:
            grown = (self._memory() or 0) - held.memory
            self.grown.setdefault(held.arm, []).append((grown, held.calls))

    def let_go(self) -> Nothing:
        """Poisons and frees the outputs of the last block now, so that the next command takes no time for it."""
        self._let_go()
        self.clock.synchronize()
        return Nothing()

    def keep(self, arm: str, position: int, seed: int) -> Nothing:
        """Keeps a copy of one output of the last block for `recheck`, and of that with odd inputs, and whether their calls left
        their inputs as they were; then one more call, on the values of `seed`. position: of the output, if none was copied early.
        Raises host_memory.FilledWhenRead."""
        if (held := self.held) is None or held.arm != arm or not held.outputs:
            return Nothing()
        held.kept, position = True, position % len(held.outputs)
        if self.kind == "cpu":  # an output that was copied has been read, too: not only of that one
            host_memory.must_be_written(outputs.spans(held.outputs[position]), thorough=True)
        position, copy = held.early.found if held.early and held.early.found else (position, None)
        odd = position if held.odd is None else held.odd % len(held.outputs)
        for one, early in {odd: None, position: copy}.items():
            self.kept.add(arm, held.seeds[one], held.outputs[one], not self.sets.is_unchanged(one), early)
        if held.graph is None:
            self._trap(arm, position % len(self.sets), seed)
        else:
            self._trap_graph(arm, held.graph, position, seed)
        return Nothing()

    def _trap(self, arm: str, index: int, seed: int) -> None:
        """One more call like the timed ones, on an input set refilled in place; its output is kept for `recheck`."""
        values = self.problem.inputs(self.device, seed)
        _, early, flags = self._trapped(arm, self.sets[index], values)
        self.sets.refill(index, seed, values)
        self.kept.add_trapped(arm, seed, early, flags)

    def sustained(
        self, arm: str, calls: int, lead: int, chunks: int, seed: int, graph: str = "", seeds: Sequence[int] = ()
    ) -> TimedBlock:
        """Back to back: `lead` untimed chunks of about `calls` calls, then `chunks` timed ones; by its graph if it has
        one. In the middle one set gets the values of `seed`; the output on them is kept for `recheck`."""
        self._let_go()
        captured, indices = self.graphs.get(graph or arm), range(len(self.sets))
        nodes = len(captured.indices) if captured else 1
        launches = max(1, round(calls / nodes))
        moment = launches * lead + secrets.randbelow(launches * chunks)
        index, values, found = moment % len(indices), self.problem.inputs(self.device, seed), []
        launch = captured.launch if captured else self._call(arm)

        def marked(number: int) -> Any:
            if number != moment:
                return launch(number)
            self.sets.refill(index, seed, values)
            out = launch(number)
            found.append(outputs.clone(outputs.plain(out)))
            return out

        with hooks.put_back():
            self._be_alone()
            self._renew(seeds)
            self._write(indices)
            if captured:
                captured.poison()
            block = self.clock.sustained(marked, nodes, launches, lead, chunks)
        self.kept.add(arm, seed, captured.outputs[index] if captured else found[0])
        return block.reply()

    def capture(self, arm: str, graph: str = "") -> Captured:
        """Captures an arm anew on every input set as one CUDA graph. graph: its name, if it is not the arm's."""
        self._let_go()
        self.graphs.pop(graph or arm, None)
        self.graphs[graph or arm] = self.clock.capture(self._call(arm), range(len(self.sets)))
        return Captured(nodes=len(self.sets))

    def drop_graphs(self) -> Nothing:
        self._let_go()
        self.graphs.clear()
        return Nothing()

    def replay(
        self,
        arm: str,
        replays: int,
        gate_ns: int = 0,
        flush: bool = False,
        graph: str = "",
        rest_ns: int = 0,
        untimed: bool = True,
        at_once: bool = False,
        seeds: Sequence[int] = (),
        early: bool = False,
        odd: Odd | None = None,
    ) -> TimedBlock:
        """`replays` timed replays of an arm's graph, after an `untimed` one, new values and a rest. Right before each timed
        replay all its outputs are poisoned and the cache is evicted. at_once, seeds, early, odd: as in `block`."""
        self._let_go()
        captured, indices = self.graphs[graph or arm], range(len(self.sets))
        held = Held(arm, 0, None, graph=captured, odd=self._odd(seeds, odd))
        more: dict[str, Any] = {"first": partial(self._write, indices)} if at_once else {}
        with hooks.put_back():
            if untimed:
                captured.launch()
            self._be_alone()
            self._renew(seeds)
            if not at_once:
                self._write(indices)
            self.clock.synchronize()
            self.clock.rest(rest_ns)
            if early and self.kept.has_room(EarlyCopy.MOST * self.output_bytes):
                held.early = EarlyCopy(replays, captured.outputs[0])
                more["after"] = held.early.look
            return self._held(held, captured.block(replays, gate_ns, flush, **more))

    def _trap_graph(self, arm: str, captured: Graph, index: int, seed: int) -> None:
        """One more replay, on an input set with values newer than the capture: reveals work done during the capture."""
        self.sets.refill(index, seed)
        captured.poison()
        captured.launch()
        self.clock.synchronize()
        self.kept.add(arm, seed, captured.outputs[index])

    def recheck(self) -> Rechecked:
        """Compares the kept outputs of timed calls with the reference."""
        self._let_go()
        readings, changed = self.kept.compare(
            lambda seed: Reference(self.problem, self._drawn(seed), seed, False, self.kinds.get(seed, "normal"))
        )
        grown, self.grown, self.kinds = self.grown, {}, {}
        return Rechecked(readings=readings, changed_inputs=changed, grown=grown)

    def probe(self, arm: str, seeds: list[int], sights: int, in_turn: int, one_buffer: bool = False) -> Probed:
        """Calls on known and on new inputs: see kernels/child/probe.py."""
        self._let_go()
        scalable = self.problem.scalable and self.problem.element_bytes > 1  # PyTorch cannot multiply fp8
        timed, call, on_host = timer(self.clock), self._call(arm), self.kind == "cpu"
        times = probe(timed, call, self.sets, self._write, seeds, sights, in_turn, scalable, on_host, one_buffer)
        self.guard.claim_processes(arm)
        return Probed(busy=self.guard.busy(arm), host_bytes=self.sets[0].nbytes if on_host else 0, **times)

    def release(self) -> Nothing:
        """Frees graphs and input sets."""
        self._let_go()
        self.graphs.clear()
        self.sets.clear()
        return Nothing()

    def profile(self, arm: str, seed: int) -> Profiled:
        """Profiler spans and event times of the same calls: see profiler.profile."""
        from kernels.child import profiler  # imported late: the import is slow and needed only after all timing

        return profiler.profile(self.clock, caller(self, arm, seed))

    def calibrate(self) -> CeilingSamples:
        """Ceilings of this device, before any kernel is loaded: see calibrate.probe."""
        found = calibrate.probe(self.clock)
        if self.kind == "cuda":
            torch.cuda.empty_cache()
        return found


def caller(bench: Bench, arm: str, seed: int) -> Callable[[], Any]:
    """A call of an arm on inputs of this seed."""
    return partial(bench.arms.run, arm, bench.problem.inputs(bench.device, seed))
