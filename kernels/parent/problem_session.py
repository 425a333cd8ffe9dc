"""A problem that came with its kernels, in a process of its own: parent side.

The process draws inputs into memory that the trusted process also sees, and computes what they should give. It is as
closed as a cell, and stopped except while the parent waits for its answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kernels.catalog import PROBLEM
from kernels.contract.isolation import Attached, Described, Expected, Opened, Refused, Segments, Taken
from kernels.host.containment import why_refused
from kernels.parent.cell_process import Cell, Trusted
from kernels.parent.child_process import ChildDied, ChildTimedOut, CommandFailed
from kernels.workload import Workload

LIMIT_S = 120.0
DRAW_S = 0.5
"""Inputs of a batch take at most this long to draw."""
SAMPLE, POOLED = 16, 8
"""Input sets that are drawn to see how long one takes; and those that an output of few elements is judged by."""


class ProblemFailed(RuntimeError):
    """The problem cannot be measured. The message is a sentence: no kernel is to blame."""


class ProblemSession:
    """Inputs and correct values of one workload."""

    def __init__(self, cell: Cell, memory: int | None, trusted: Trusted, workload: Workload) -> None:
        """memory: the file of its input sets, on a CPU."""
        self.cell, self.memory, self.trusted, self.workload = cell, memory, trusted, workload

    def describe(self, seed: int, weights: int) -> dict[str, Any]:
        """Loads the problem. Returns what its kernels need to know of it."""
        self._call(self.cell.wait_ready)
        if why := why_refused(self.cell.facts):
            raise ProblemFailed(why)
        found: Described = self._ask("describe", workload=self.workload.model_dump(), seed=seed, weights=weights)
        self.described = found
        return {"described": found.model_dump(), "weights": weights}

    def opened(self, brought: dict[str, Any]) -> Opened:
        """The sizes of its input sets."""
        try:
            said: Opened = self.trusted.call(
                "open", workload=self.workload.model_dump(), described=brought["described"]
            )
        except CommandFailed as error:
            raise ProblemFailed(str(error).partition(": ")[2]) from None
        return said

    def attach(self, sets: int, path: str, there: str) -> str:
        """Memory for its input sets, in both processes. Returns why its memory cannot be read, if so."""
        attached: Attached = self.trusted.call("attach", cell=PROBLEM, sets=sets, pid=self.cell.pid, path=path)
        reached: Taken = self.trusted.call("reach", cell=PROBLEM, segments=[])
        if not reached.refused:
            self._ask("map", memory=attached.handle or there, sets=sets)
        return reached.refused

    def close(self) -> None:
        self.cell.close()
        if self.memory is not None:
            os.close(self.memory)

    def draw_s(self, seed: int, sets: int) -> float:
        """How long one of some input sets takes to draw. The first of all takes longer."""
        self.draw(seed, 1)
        count, begin = min(SAMPLE, sets), time.monotonic()
        self.draw(seed, count)
        return (time.monotonic() - begin) / count

    def draw(self, seed: int, calls: int, first: int = 0) -> None:
        self._ask("draw", seed=seed, calls=calls, first=first)

    def expect(self, indices: list[int]) -> None:
        """Gives the trusted process what these input sets should give."""
        for index in indices:
            found: Expected = self._ask("expect", index=index)
            if self.cell.device.kind == "cuda":
                there: Segments = self._ask("segments")
                self._tell("reach", cell=PROBLEM, segments=there.segments)
            values = {"plain": found.plain, "exact": found.exact, "nudged": found.nudged}
            claims = {name: [one.model_dump() for one in outputs] for name, outputs in values.items()}
            self._tell("expect", index=index, **claims)

    def refuses(self, indices: list[int]) -> str:
        """What the problem's own check says against the outputs that the trusted process took of these input sets; empty:
        nothing. Outputs of another kind than the reference's are not shown to it."""
        if not self.described.has_check:
            return ""
        for number, index in enumerate(indices):
            shown: Taken = self.trusted.call("show", number=number)
            if not shown.refused:
                found: Refused = self._ask("check", index=index)
                if found.why:
                    return found.why
        return ""

    def own_check(self, refused: str) -> str:
        """What its own check says of a kernel, in words; empty if its format has none."""
        if why := self.described.why_no_check:
            return f"not called: {why}"
        return "" if not self.described.has_check else f"wrong: {refused}" if refused else "right"

    def pool(self, seed: int, sets: int) -> None:
        """Lets the trusted process see several seeds: of few elements, one seed's error is chance."""
        for begin in range(0, POOLED, sets):
            count = min(sets, POOLED - begin)
            self.draw((seed + begin) % 2**31, count)
            self.trusted.call("forget")
            self.expect(list(range(count)))
            self.trusted.call("pool")

    def _tell(self, do: str, **claims: Any) -> None:
        """Lets the trusted process read what this one claims."""
        try:
            taken: Taken = self.trusted.call(do, LIMIT_S, **claims)
            why = taken.refused
        except CommandFailed as error:
            why = str(error)
        if why:
            raise ProblemFailed(f"the problem's values cannot be used: {why}")

    def _ask(self, do: str, **arguments: Any) -> Any:
        return self._call(partial(self.cell.call, do, LIMIT_S, **arguments))

    def _call(self, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except (CommandFailed, ChildDied, ChildTimedOut) as error:
            raise ProblemFailed(f"the problem's own process: {error}") from None
