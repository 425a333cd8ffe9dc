"""Who did it: an error, or a change of what all share, is the arm's that caused it, never its neighbour's."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from kernels.analysis.suspicion import DOUBTS, LEAK_BLOCKS, PROBE_SETS, why_leaks
from kernels.contract.arm_result import Status
from kernels.contract.replies import Rechecked, Watched
from kernels.parent.arm import Arm
from kernels.parent.child_process import ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.session import CHECK_LIMIT_S

if TYPE_CHECKING:
    from kernels.parent.engine import Engine

ALONE_S, MOST_KEPT_BYTES = 20.0, 2**28
"""An arm under suspicion runs alone for at most this long; one that seems to leak, until it has taken so much more memory."""
SHORT_S = 0.1
"""Blocks that take less than this on average get more calls, as many as keep MOST_KEPT_BYTES in one look."""
CHANGED = "changed global state: "
UNKNOWN = "one of {} changed global state; to see which, measure them one at a time: "


class Blame:
    """Finds the arm of an engine that caused something in the rounds, where all arms share a process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.doubts = 0
        """How often something was changed in the rounds and no arm does it alone."""

    def watch(self, arm: Arm) -> Watched:
        """Compares the process with its state before this arm ran alone. What differs is this arm's."""
        got: Watched = self.engine.session.call("watch", CHECK_LIMIT_S, arm=arm.name)
        if got.changes:
            arm.fail(Status.SUSPECT, f"{CHANGED}{'; '.join(got.changes)}"[:2000])
        return got

    def after(self, arm: Arm) -> None:
        """Compares the process after this arm's last checks, where others have run before it. What differs is this arm's, unless
        another has left threads: then each of them runs alone, and the others are timed again."""
        engine = self.engine
        others = [other for other in engine.alive if other.leaves_threads and other is not arm]
        if not engine.session.replaceable or not others:
            self.watch(arm)
            return
        got: Watched = engine.session.call("watch", CHECK_LIMIT_S, arm=arm.name)
        if got.changes:
            self._settle([arm, *others], got.changes)

    def errors(self, error: Exception) -> None:
        """Turns an error of the rounds into the result of the arm that caused it: the one that ran, unless another left
        threads which may have disturbed it."""
        others = [arm for arm in self.engine.alive if arm.leaves_threads and arm is not self.engine.running]
        if self.engine.session.replaceable and others:
            for arm in [self.engine.running, *others]:
                if (found := self._alone(arm)) is not None:
                    self.engine.running = arm
                    error = found if isinstance(found, Exception) else error
                    break
        self.engine.session.blame(self.engine.running, "timing", error)

    def _alone(self, arm: Arm) -> Exception | list[str] | None:
        """Calls an arm alone in a new process, about as long as the rounds have taken. Returns its error, or what it
        changed; None if nothing."""
        seconds = min(ALONE_S, time.monotonic() - self.engine.began)
        self.engine.session.replace()
        self.engine.step(arm.name, "alone")
        try:
            self.engine.open(True)
            self.engine.session.call("load", self.engine.plan.compile_limit_s, arm=arm.name)
            self.engine.session.call("compile", self.engine.plan.compile_limit_s, arm=arm.name, seed=self.engine.seed())
            self.engine.session.call("prepare", CHECK_LIMIT_S, seeds=self.engine.seeds(PROBE_SETS), sets=PROBE_SETS)
            begin, blocks = time.monotonic(), 0
            while time.monotonic() - begin < seconds or blocks <= LEAK_BLOCKS:
                self.engine.session.call("block", CHECK_LIMIT_S, arm=arm.name, calls=PROBE_SETS)
                blocks += 1
            got: Watched = self.engine.session.call("watch", CHECK_LIMIT_S, arm=arm.name)
        except (CommandFailed, ChildDied, ChildTimedOut) as error:
            return error
        return got.changes or None

    def leaks(self, grown: Mapping[str, Sequence[tuple[int, int]]]) -> dict[str, str]:
        """Arm -> why it leaks memory. grown: as in Rechecked.

        Memory is counted for the whole process: where several arms show it, or one leaves threads, each runs alone, and then
        the others are timed again.
        """
        engine, alive = self.engine, self.engine.alive
        seen = {arm.name: why for arm in alive if (why := why_leaks(grown.get(arm.name, [])))}
        if not engine.session.replaceable or (len(seen) < 2 and not any(arm.leaves_threads for arm in alive)):
            found = {
                arm.name: seen[arm.name] for arm in alive if arm.name in seen and self._keeps_more(arm, grown[arm.name])
            }
            if len(found) < 2:
                return found
            of_all = f"; or one of {', '.join(found)} does it in the calls of all: measure them one at a time"
            return {name: why + of_all for name, why in found.items() if name != engine.baseline}
        self.doubts += bool(seen)
        if not seen or self.doubts > DOUBTS:
            return {}  # no arm does it alone
        for arm in [arm for arm in alive if arm.name in seen]:
            if self._alone(arm) is None:
                grown_alone = self._grown(arm.name)
                if (why := why_leaks(grown_alone)) and self._keeps_more(arm, grown_alone):
                    arm.fail(Status.SUSPECT, why)
        raise engine.retry()

    def _keeps_more(self, arm: Arm, grown: Sequence[tuple[int, int]]) -> bool:
        """Whether an arm that seems to leak goes on to take memory: a pool that only fills stops before it has taken
        MOST_KEPT_BYTES more. The arm runs alone, in the same process; blocks become longer while they are short."""
        begin, calls, more = time.monotonic(), grown[-1][1], list[tuple[int, int]]()
        per_call = max(1.0, median(count / calls for count, calls in grown))
        self.engine.running = arm
        self.engine.step(arm.name, "memory")
        self.engine.session.call("prepare", CHECK_LIMIT_S, seeds=self.engine.seeds(PROBE_SETS), sets=PROBE_SETS)
        while not more or (sum(count for count, _ in more) < MOST_KEPT_BYTES and time.monotonic() - begin < ALONE_S):
            if time.monotonic() - begin < len(more) * SHORT_S:
                calls = max(calls, min(4 * calls, int(MOST_KEPT_BYTES / (4 * LEAK_BLOCKS) / per_call)))
            try:
                for _ in range(4 * LEAK_BLOCKS):
                    self.engine.session.call("block", CHECK_LIMIT_S, arm=arm.name, calls=calls)
            except CommandFailed as error:
                if error.fault.kind == "out of memory":
                    return True
                raise
            more += self._grown(arm.name)
            if not why_leaks(more):
                return False
        return True

    def _grown(self, arm: str) -> Sequence[tuple[int, int]]:
        """What the calls of an arm have kept since this was asked last: (bytes, calls) of each block."""
        got: Rechecked = self.engine.session.call("recheck", CHECK_LIMIT_S)
        return got.grown.get(arm, [])

    def changes(self) -> None:
        """Compares the process after the rounds with its state before. Who changed something is found by running each arm
        alone; then the others are timed again."""
        got: Watched = self.engine.session.call("watch", CHECK_LIMIT_S)
        candidates = [arm for arm in self.engine.alive if arm.name != self.engine.baseline] or self.engine.alive
        for arm in candidates:
            arm.leaves_threads |= got.threads  # one of them began it in the rounds
        if got.changes:
            self._settle(candidates, got.changes)

    def _settle(self, candidates: Sequence[Arm], changes: Sequence[str]) -> None:
        """Fails those who changed something: found by running each alone. Raises RetryInNewProcess where there can be another."""
        engine = self.engine
        guilty, known = candidates, len(candidates) == 1
        if engine.session.replaceable and not known:
            guilty = [arm for arm in candidates if self._alone(arm) is not None]
            known, self.doubts = bool(guilty), self.doubts + 1
            if not guilty and self.doubts >= DOUBTS:
                candidates = guilty = [arm for arm in candidates if arm.name != engine.baseline] or candidates
        why = CHANGED if known else UNKNOWN.format(", ".join(arm.name for arm in candidates))
        for arm in guilty:
            arm.fail(Status.SUSPECT, f"{why}{'; '.join(changes)}"[:2000])
        if engine.session.replaceable:
            engine.session.replace()
            raise engine.retry()
