"""Several processes that take turns on one device: the trusted one, and a cell for each arm. Parent side.

It answers the commands of rounds.Paired: a block is one batch of the arm's cell, timed by this process's own clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from kernels.catalog import get_kernel
from kernels.contract.events import Phase
from kernels.contract.isolation import MOST_CALLS, Armed, Attached, Batch, Judged, Opened, Output, Segments, Taken
from kernels.contract.replies import Fault, Nothing, Prepared, TimedBlock
from kernels.host.containment import why_refused
from kernels.host.device import Device
from kernels.operations.base import Distribution
from kernels.parent import set_files
from kernels.parent.batches import LEAST_CALLS, estimated, lengths
from kernels.parent.capturing import Capturing
from kernels.parent.cell_process import Cell, ProblemCell, Suspect, Trusted
from kernels.parent.child_process import ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.drive import kernel_of
from kernels.parent.idleness import Idleness
from kernels.parent.problem_session import DRAW_S, ProblemFailed, ProblemSession
from kernels.parent.seeds import Draws, secret
from kernels.parent.slot import Slot, outputs_of, overlap, wrong_device
from kernels.parent.stopwatch import Stopwatch
from kernels.submission import is_submitted
from kernels.workload import Workload

MEMORY_SHARE, MOST_SHARE = {"cpu": 0.4, "cuda": 0.75}, {"cpu": 0.08, "cuda": 0.15}
"""Share of the free memory for input sets and outputs of all cells together; and for one cell's input sets, or its outputs, at
most. On a GPU more: memory limits batches of short calls on large tensors (docs/instrument.md#isolated)."""
SPARES = 3
"""Cells that start beside the trusted process, before a kernel is theirs: a start takes seconds."""
CHOSEN = 2
"""Calls of a batch whose outputs are checked, beside the last one: work that goes on after the answer shows there."""
VERIFY_CALLS = 2
LONGER, KNOWN = {"cpu": 1.03, "cuda": 1.015}, 3
"""A batch that is longer by this factor than the median of so many or more before it, of its arm, is taken once more: a host
may take the processor away for milliseconds (docs/instrument.md#isolated)."""
LIMIT_S = 120.0


class IsolatedSession:
    """One workload. `turn` names the arm whose block comes next."""

    def __init__(
        self,
        device: Device,
        workload: Workload,
        should_stop: Callable[[], bool],
        rest: float,
        cells: int,
        stopwatch: Stopwatch | None = None,
        independent: bool = False,
        quick: bool = False,
    ) -> None:
        """cells: how many there will be at once. independent: no process is forked by a template. quick: shorter batches."""
        self.during = (stopwatch or Stopwatch()).during
        self.device, self.workload, self.should_stop = device, workload, should_stop
        self.independent = independent
        self.rest = rest if device.kind == "cuda" else 0.0
        self.batch_ns, self.rest_s = lengths(device.kind, rest, quick)
        self.seed = secret()
        self.rng = Draws(str(self.seed))
        self.slots: dict[str, Slot] = {}
        self.turn = ""
        self.graphs = False
        self.capturing = Capturing(self)
        self.host_ns = 0.0
        """What the host adds to every batch: it is subtracted."""
        self.why_same_user = ""
        """Why cells cannot have users of their own."""
        self.source: ProblemSession | None = None
        """Draws inputs and computes correct values, of a problem that came with its kernels."""
        self.brought: dict[str, Any] = {}
        self.room = VERIFY_CALLS
        """Input sets of a cell."""
        self.why_no_problem = ""
        """Why it cannot be measured: nothing can be started then."""
        with self.during("start"):
            self.trusted = Trusted(device, should_stop, fresh=independent)
            self.spares = [self._spawn() for _ in range(min(cells, SPARES))]
            """Cells that have loaded no kernel, each with the file of its input sets."""
        try:
            with self.during("start"):
                self.trusted.wait_ready()
            with self.during("inputs"):
                if workload.problem.brought:
                    self._bring(cells + 1)
                else:
                    sizes: Opened = self.trusted.call("open", workload=workload.model_dump())
                    self._open(sizes, cells)
        except BaseException:
            self.close()
            raise

    def _bring(self, cells: int) -> None:
        """Opens a problem that came with its kernels."""
        try:
            cell, memory = self._spawn(kind=ProblemCell)
            self.source = source = ProblemSession(cell, memory, self.trusted, self.workload)
            self.brought = source.describe(self.fresh_seed(), self.fresh_seed())
            sizes = source.opened(self.brought)
            self._open(sizes, cells)
            if why := source.attach(self.room, *self._shared(memory, sizes.answer_bytes)):
                if not cell.facts.own_user:
                    raise ProblemFailed(f"its memory cannot be read: {why}")
                self._give_up_users(why)
                source.close()
                return self._bring(cells)
            self.room = max(VERIFY_CALLS, min(self.room, int(DRAW_S / source.draw_s(self.fresh_seed(), self.room))))
            if sizes.few:
                source.pool(self.fresh_seed(), self.room)
        except ProblemFailed as error:
            self.why_no_problem = str(error)

    def fresh_seed(self) -> int:
        """A seed of inputs. Of a problem that came with its kernels it is small: its code may give it to any generator."""
        return self.rng.randrange(2**31) if self.workload.problem.brought else self.rng.of_inputs()

    def _open(self, sizes: Opened, cells: int) -> None:
        self.set_bytes = sizes.set_bytes
        kind = self.device.kind
        room = min(MOST_SHARE[kind], MEMORY_SHARE[kind] / (2 * cells)) * sizes.free_bytes
        most = int(min(MOST_CALLS, room / max(1, sizes.set_bytes), room / max(1, sizes.output_bytes)))
        self.room = max(VERIFY_CALLS, most)
        self.idleness = Idleness(self.trusted, kind)

    def _spawn(self, environment: dict[str, str] | None = None, kind: type[Cell] = Cell) -> tuple[Cell, int | None]:
        memory = set_files.new_file() if self.device.kind == "cpu" else None
        made_cell = kind(self.device, self.should_stop, memory, not self.why_same_user, environment, self.independent)
        return made_cell, memory

    def _shared(self, memory: int | None, more: int = 0) -> tuple[str, str]:
        """Makes the file of a process's input sets as large as they are, and this much more: its path for the trusted process,
        and for its own. Empty on a GPU."""
        return ("", "") if memory is None else set_files.sized(memory, self.room * self.set_bytes + more)

    def _give_up_users(self, why: str) -> None:
        """The next cells have this process's user."""
        self.why_same_user = f"own user: its memory cannot be read ({why})"
        self._end_spares()

    def start(self, slot: str) -> Slot:
        """Starts the cell of an arm and loads its kernel there."""
        self.stop(slot)
        environment = get_kernel(self.workload.operation, kernel_of(slot)).environment
        cell, memory = self.spares.pop() if self.spares and not environment else self._spawn(environment)
        self.slots[slot] = found = Slot(cell, memory=memory)
        path, there = self._shared(memory)
        with self.during("start"):
            cell.wait_ready()
        attached: Attached = self.trusted.call("attach", cell=slot, sets=self.room, pid=cell.pid, path=path)
        reached: Taken = self.trusted.call("reach", cell=slot, segments=[])
        if reached.refused and cell.facts.own_user:  # before any kernel is loaded
            self._give_up_users(reached.refused)
            return self.start(slot)
        if self.why_same_user:
            cell.facts.missing.append(self.why_same_user)
        if is_submitted(kernel_of(slot)) and (why := why_refused(cell.facts)):
            raise CommandFailed(Fault(kind="unsupported", message=why, must_replace=True))
        opening = {"workload": self.workload.model_dump(), "arm": kernel_of(slot), "sets": self.room}
        opening |= {"memory": attached.handle or there} | ({"brought": self.brought} if self.brought else {})
        with self.during("load"):
            cell.call("open", LIMIT_S, **opening)
        return found

    def stop(self, slot: str) -> None:
        """Ends an arm's cell, with all of its processes."""
        if found := self.slots.pop(slot, None):
            _end(found.cell, found.memory)
            if self.trusted.alive:
                self.trusted.call("detach", cell=slot)

    def _end_spares(self) -> None:
        while self.spares:
            _end(*self.spares.pop())

    def source_log(self, size: int) -> str:
        """The end of what the process of a problem printed. Ends it."""
        return self.source.cell.last_words(size) if self.source else ""

    def close(self) -> None:
        """Ends all processes, whatever they are doing; at once, for each takes a while to give back the memory of a device."""
        cells = [*self.spares, *((found.cell, found.memory) for found in self.slots.values())]
        for one in (*(cell for cell, _ in cells), self.trusted):
            one.strike()
        for cell, memory in cells:
            _end(cell, memory)
        self.spares, self.slots = [], {}
        if self.source:
            self.source.close()
        self.trusted.close()

    # --- correctness --------------------------------------------------------------------------------------------------

    def verify(
        self, slot: str, limit_s: float, seed: int, distribution: Distribution = "normal", thorough: bool = False
    ) -> tuple[dict[str, Any], float]:
        """Two calls on fresh inputs: the reading of one, the time of both (s). Of any input sets: none is of timed calls only."""
        mine = self.slots[slot]
        mine.captured = 0
        first = self.rng.randrange(self.room - VERIFY_CALLS + 1)
        asked: dict[str, Any] = {"cell": slot, "seed": seed, "distribution": distribution}
        with self.during("inputs"):
            self._write(LIMIT_S, calls=VERIFY_CALLS, first=first, **asked)
        begin = time.monotonic()
        with self.during("first call"):
            called = mine.cell.call("run", limit_s, calls=VERIFY_CALLS, first=first)
        took_s = time.monotonic() - begin
        if why := called.wrong_kind or wrong_device(called, self.device.kind):
            return {"wrong_kind": why}, took_s
        if len(called.outputs) != VERIFY_CALLS or len({len(outputs) for outputs in called.outputs}) != 1:
            raise Suspect(f"its {VERIFY_CALLS} calls did not return the same number of outputs")
        self.reach(slot)
        chosen = self.rng.randrange(VERIFY_CALLS)
        mine.layout = called.outputs[chosen]
        addresses = [one.address for outputs in called.outputs for one in outputs]
        mine.shared |= overlap(addresses, mine.layout)
        self._take(slot, [mine.layout])
        with self.during("check"):
            judged = self._judge(mine, LIMIT_S, indices=[first + chosen], thorough=thorough, **asked)
        mine.inputs_changed |= judged.inputs_changed
        return judged.readings[0], took_s

    def warm(self, slot: str) -> None:
        """Lets a cell make its first calls while others are used: they load libraries. `warmed` waits for them."""
        with self.during("inputs"):
            self._write(LIMIT_S, calls=VERIFY_CALLS, cell=slot, seed=self.fresh_seed(), distribution="normal")
        self.slots[slot].cell.ask("run", calls=VERIFY_CALLS)

    def warmed(self, slot: str, limit_s: float) -> bool:
        """Waits until a cell has made its first calls. False: they failed, and the cell is ended."""
        try:
            with self.during("first call"):
                self.slots[slot].cell.told("run", limit_s)
        except (CommandFailed, ChildDied, ChildTimedOut):
            self.stop(slot)
            return False
        return True

    def _write(self, limit_s: float, seed: int, calls: int, first: int = 0, **more: Any) -> None:
        """Fresh values for some input sets of a cell. first: of them."""
        if self.source:
            self.source.draw(seed, calls, first)
        self.trusted.call("write", limit_s, seed=seed, calls=calls, first=first, **more)

    def _judge(self, mine: Slot, limit_s: float, indices: list[int], **more: Any) -> Judged:
        """Compares the taken outputs of these calls with their correct values; and asks the problem's own check."""
        if self.source:
            self.source.expect(indices)
        judged: Judged = self.trusted.call("judge", limit_s, indices=indices, **more)
        if self.source:
            mine.refused = mine.refused or self.source.refuses(indices)
        return judged

    def reach(self, slot: str) -> None:
        """Opens the device memory of a cell's outputs."""
        if self.device.kind == "cuda":
            found: Segments = self.slots[slot].cell.call("segments", LIMIT_S)
            opened: Taken = self.trusted.call("reach", LIMIT_S, cell=slot, segments=found.segments)
            if opened.refused:
                raise Suspect(f"its outputs cannot be read: {opened.refused}")

    def _take(self, slot: str, calls: list[list[Output]]) -> None:
        claims = [[one.model_dump() for one in outputs] for outputs in calls]
        taken: Taken = self.trusted.call("take", LIMIT_S, cell=slot, calls=claims)
        if taken.refused:
            raise Suspect(f"its outputs cannot be read: {taken.refused}")

    # --- timing -------------------------------------------------------------------------------------------------------

    def calls_for(self, call_ns: float) -> int:
        """Calls of a batch: about batch_ns, each with inputs and outputs of its own."""
        return min(self.room, max(LEAST_CALLS[self.device.kind], round(self.batch_ns / call_ns)))

    def estimate(self, slot: str, limit_s: float) -> float:
        """Time of a call (ns)."""
        return estimated(lambda calls: self.batch(slot, calls, limit_s, "estimate", is_judged=False), self.calls_for)

    def batch(
        self, slot: str, calls: int, limit_s: float = LIMIT_S, phase: Phase = "rounds", is_judged: bool = True
    ) -> int:
        """One batch on fresh inputs: its length (ns). The outputs of its last call, and of others chosen afterwards, are copied;
        and checked, but where nothing that is said rests on the batch: no cell knows where."""
        mine, seed = self.slots[slot], self.fresh_seed()
        some = min(CHOSEN, calls - 1)
        done, wall_ns, chosen = self._batch(
            slot, calls, limit_s, phase, seed, lambda: [calls - 1, *self.rng.sample(range(calls - 1), some)]
        )
        if is_judged:
            with self.during("check after"):
                judged = self._judge(mine, limit_s, cell=slot, seed=seed, indices=chosen)
            mine.readings += judged.readings
            mine.inputs_changed |= judged.inputs_changed
        mine.walls_ns.append(wall_ns)
        mine.own_ns.append(done.own_ns)
        self.idleness.must_be()
        mine.cell.must_have_rested()
        return wall_ns

    def batch_on(self, slot: str, calls: int, seed: int, kinds: Sequence[Distribution]) -> list[dict[str, Any]]:
        """Readings of calls with inputs of other distributions, drawn by chance, in one more batch. To the cell it is like those
        that are timed, and its other calls have usual inputs: it cannot be right only when it is checked."""
        if calls < len(kinds):
            return [reading for kind in kinds for reading in self.batch_on(slot, calls, self.fresh_seed(), [kind])]
        chosen = self.rng.sample(range(calls), len(kinds))
        odd = {str(index): kind for index, kind in zip(chosen, kinds, strict=True)}
        mine = self.slots[slot]
        self._batch(slot, calls, LIMIT_S, "rounds", seed, lambda: chosen, odd)
        with self.during("check after"):
            judged = self._judge(mine, LIMIT_S, cell=slot, seed=seed, indices=chosen, odd=odd)
        mine.inputs_changed |= judged.inputs_changed
        self.idleness.must_be()
        mine.cell.must_have_rested()
        return judged.readings

    def _batch(
        self,
        slot: str,
        calls: int,
        limit_s: float,
        phase: Phase,
        seed: int,
        choose: Callable[[], list[int]],
        odd: Mapping[str, Distribution] | None = None,
    ) -> tuple[Batch, int, list[int]]:
        """One batch: (what the cell says of it, its length in ns, the calls whose outputs were copied). choose: these, when it
        has ended. odd: calls whose inputs are of another distribution."""
        mine = self.slots[slot]
        if self.graphs:
            self.capturing.before(slot, calls, limit_s)

        def between(armed: Armed) -> None:
            with self.during("fresh inputs"):
                self.idleness.must_be()
                self._write(limit_s, cell=slot, seed=seed, calls=calls, odd=odd or {})
            if phase != "estimate":
                with self.during("rests"):
                    time.sleep(self.rest_s)

        with self.during(phase):
            done, wall_ns, ended = mine.cell.batch(calls, limit_s, between)
        if len(done.addresses) != calls * len(mine.layout):
            raise Suspect(f"{len(done.addresses)} outputs after {calls} calls")
        if not self.graphs:
            self.reach(slot)
        chosen = choose()
        claims = [outputs_of(mine.layout, done.addresses, index) for index in chosen]
        if self.device.kind == "cpu":
            mine.delays_ns.append(mine.cell.freeze() - ended)
            self._take(slot, claims)
        else:
            self._take(slot, claims)
            mine.delays_ns.append(time.monotonic_ns() - ended)
            mine.cell.freeze()
        mine.shared |= overlap(done.addresses, mine.layout)
        return done, wall_ns, chosen

    def empty_batches(self, slot: str, count: int) -> list[int]:
        """Lengths of batches without calls (ns): what the host adds to every batch. Of graphs: of one addition."""
        cell, self.slots[slot].captured = self.slots[slot].cell, 0
        cell.call("capture" if self.graphs else "forget", **({"calls": 0} if self.graphs else {}))
        with self.during("estimate"):
            return [cell.batch(0, LIMIT_S, lambda armed: time.sleep(self.rest_s))[1] for _ in range(count)]

    def call_ns(self, slot: str, calls: int, limit_s: float = LIMIT_S, is_judged: bool = True) -> float:
        """Time of a call (ns), from one batch, without what the host adds."""
        return max(1.0, self.batch(slot, calls, limit_s, is_judged=is_judged) - self.host_ns) / calls

    def block(self, slot: str, calls: int, limit_s: float = LIMIT_S, is_judged: bool = True) -> float:
        """Time of a call (ns) in one batch of a round; of the shorter one, if it took two. Every arm is treated so."""
        mine, took_ns = self.slots[slot], self.call_ns(slot, calls, limit_s, is_judged)
        if len(mine.calls_ns) >= KNOWN and took_ns > LONGER[self.device.kind] * median(mine.calls_ns):
            mine.retaken += 1
            took_ns = min(took_ns, self.call_ns(slot, calls, limit_s, is_judged))
        mine.calls_ns.append(took_ns)
        return took_ns

    # --- the commands of rounds.Paired --------------------------------------------------------------------------------

    def call(self, do: str, limit_s: float = LIMIT_S, **arguments: Any) -> Any:
        if do == "block":
            return TimedBlock(ticks_ns=[self.block(self.turn, arguments["calls"], limit_s)])
        if do == "prepare":
            return Prepared(sets=self.room, covered=True, input_bytes=self.set_bytes)
        return {"keep": Nothing()}[do]  # every batch is checked


def _end(cell: Cell, memory: int | None) -> None:
    cell.close()
    if memory is not None:
        os.close(memory)
