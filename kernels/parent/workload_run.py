"""One workload of a run, with all its arms: correct before, timed together, correct after. Parent side.

A crash, a hang or a flood belongs to the kernel that was running: it gets that as its result, the child starts again
without it.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from kernels import catalog
from kernels.analysis import roofline
from kernels.analysis.correctness import judge
from kernels.analysis.suspicion import DOUBTS, why_leaks, why_outside, why_probed
from kernels.operations.base import DISTRIBUTIONS
from kernels.parent import rounds
from kernels.parent.arm import Arm
from kernels.parent.child_process import Child, ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.drive import Drive, kernel_of
from kernels.parent.estimate import estimate
from kernels.parent.groups import MAIN, Group, groups, uncapturable
from kernels.parent.results import NS_PER_MS, arm_result, reading_result
from kernels.workload import Workload

if TYPE_CHECKING:
    from kernels.parent.supervisor import Supervisor

VERIFY_LIMIT_S = 120.0
PROBED_CALLS = 60
"""A probe of a kernel that takes long has about half as many."""
BATCH_NS = 50e6
"""Length of the batch whose calls are held against the parent's own clock."""
MAX_BATCH = 1000
SAME_AGAIN = 0.05
"""A time above a measured ceiling is believed if a second process finds the same multiple of the baseline within this,
or the same time."""


class Disturbed(Exception):
    """This process is not fit to time in: a kernel left something running, or a capture failed. Measured again in another."""


@dataclass
class Timed:
    """A group of arms and what was read of it: nothing, if nothing was timed."""

    group: Group
    arms: list[Arm]
    reading: rounds.Reading | None = None

    def p50_ms(self, name: str) -> float:
        assert self.reading is not None
        ticks = [tick for block in self.reading.blocks[name] for tick in block]
        return median(ticks) / NS_PER_MS


def _times(found: list[Timed]) -> dict[str, float]:
    """Kernel -> p50 in ms, where it was timed; in the group that comes first."""
    return {
        arm.name: timed.p50_ms(arm.name)
        for timed in reversed(found)
        for arm in timed.arms
        if timed.reading and timed.reading.blocks.get(arm.name)
    }


class Measuring:
    """One workload. `measure` does it and emits one event per group."""

    def __init__(self, run: Supervisor, workload: Workload) -> None:
        self.run, self.workload, self.plan = run, workload, run.spec.protocol
        self.rng = random.Random(f"{self.plan.seed}/{workload.key}")
        self.cuda = run.device.kind == "cuda"
        self.arms = [self._arm(name) for name in run.spec.kernels]
        self.opened: tuple[Child, str] | None = None
        """The child, and the key of the workload that it has open."""
        self.uncaptured: set[str] = set()
        """Arms that could not be captured as graphs."""
        self.begin = time.monotonic()

    def _arm(self, name: str) -> Arm:
        """A kernel that has hung in this run would hang again, for minutes on every workload."""
        arm = arm_of(self.run, self.workload, name)
        hung = next(
            (key for (key, who), status in self.run.standing.items() if who == name and status == "timed out"), ""
        )
        if arm.status == "ok" and hung:
            where = next(w for w in self.run.spec.workloads if w.key == hung)
            arm.fail("timed out", f"not tried here: it hung on {where.problem.label()}")
        return arm

    def measure(self) -> None:
        for arm in self.arms:
            if arm.status == "ok":
                self._verify(arm)
        found = self._without_timing() if self.plan.verify_only else self._timed()
        for number, timed in enumerate(found):
            failed = [a for a in self.arms if a.status != "ok" and a not in timed.arms] if number == 0 else []
            self._emit(timed, [*timed.arms, *failed])

    # --- correct before -------------------------------------------------------------------------------------------

    def _open(self, workload: Workload | None = None, afresh: bool = False) -> Child:
        """A child that has this workload open, or a relative of it."""
        workload, child = workload or self.workload, self.run.ensure_child()
        if afresh or self.opened != (child, workload.key):
            child.call("open", workload=workload.model_dump())
            self.opened = child, workload.key
        return child

    def _verify(self, arm: Arm) -> None:
        """Loads, compiles and checks one arm, alone, so that a crash is surely its own."""
        self.run.step(arm.name, "compile")
        self._open()
        limit = self.plan.compile_limit_s
        for do, arguments in (("load", {}), ("compile", {"seed": self.rng.randrange(2**31)})):
            done = self.run.attempt(arm, do, limit, **arguments)
            if done is None:
                return
            arm.facts |= done
        readings: list[dict[str, Any]] = []
        flags: dict[str, Any] = {"inputs_changed": False, "shared": False, "deterministic": True}
        for number, seed in enumerate(self._seeds()):
            self.run.step(arm.name, f"verify {number + 1} of {self.plan.verify_seeds}")
            kind = DISTRIBUTIONS[number % len(DISTRIBUTIONS)]
            asked = {"seed": seed, "thorough": number == 0, "distribution": kind}
            got = self.run.attempt(arm, "verify", VERIFY_LIMIT_S, **asked)
            if got is None:
                return
            if self._silence(got["busy"]):
                if arm.status == "ok":
                    self._verify(arm)
                return
            readings.append(got["reading"])
            flags["inputs_changed"] |= got["inputs_changed"]
            flags["shared"] |= got["shared"]
            flags["deterministic"] = flags["deterministic"] and got["deterministic"]
        arm.judged(judge(readings, self.workload.dtype, flags))

    def _silence(self, busy: list[list[str]]) -> bool:
        """Ends what kernels left running, with the child, and says so of them. True: there was something."""
        busy = [[owner, what] for owner, what in busy if owner]
        for owner, what in busy:
            for arm in self.arms:
                if arm.name == owner and arm.status in ("ok", "incorrect"):
                    arm.fail("suspect", f"left {what} running that is busy while other kernels are measured")
        if busy:
            self.run.retire_child()
        return bool(busy)

    def _seeds(self) -> list[int]:
        """The same for every arm of a workload, so that references can be shared."""
        seeds = random.Random(f"verify/{self.plan.seed}/{self.workload.key}")
        return [seeds.randrange(2**31) for _ in range(self.plan.verify_seeds)]

    def _without_timing(self) -> list[Timed]:
        """Correctness alone, which is then also checked on small relatives of odd sizes."""
        alive = [arm for arm in self.arms if arm.status == "ok"]
        for edge in self.workload.problem.edges():
            relative = Workload(
                operation=self.workload.operation, dtype=edge.dtype, sizes=edge.model_dump(exclude={"dtype"})
            )
            for arm in alive:
                self._check_edge(arm, relative)
        return [Timed(Group(MAIN, "verify", ()), alive)]

    def _check_edge(self, arm: Arm, relative: Workload) -> None:
        """One arm on one relative: right, wrong, or not supported there, which is no fault."""
        self.run.step(arm.name, f"verify {relative.problem.label()}")
        trial = arm_of(self.run, relative, arm.name)
        self._open(relative)
        if trial.status == "ok":
            got = self.run.attempt(trial, "verify", self.plan.compile_limit_s, seed=self.plan.seed, thorough=True)
            if got is not None:
                trial.judged(judge([got["reading"]], relative.dtype))
        arm.facts["correctness"].setdefault("edges", {})[relative.problem.label()] = (
            "right" if trial.status == "ok" else f"{trial.status}: {trial.why}"
        )
        if trial.status not in ("ok", "unsupported") and arm.status == "ok":
            arm.facts["correctness"]["correct"] = False
            arm.fail(trial.status, f"at {relative.problem.label()}: {trial.why}", trial.log)

    # --- timing ---------------------------------------------------------------------------------------------------

    def _timed(self) -> list[Timed]:
        """Times the arms that are right, together. A kernel that fails now leaves, and the rest is measured again.

        So it is, once, in a new process, if a time is above what the device was measured to reach.
        """
        before: dict[str, float] | None = None
        while True:
            alive = [arm for arm in self.arms if arm.status == "ok"]
            if not alive:
                return [Timed(Group(MAIN, self._mode_without_reading(), ()), [])]
            baseline = self.run.spec.baseline
            self._running = alive[0]
            try:
                found = self._groups(alive, baseline if any(a.name == baseline for a in alive) else alive[0].name)
            except Disturbed:
                continue
            except (CommandFailed, ChildDied, ChildTimedOut) as error:
                self.run.blame(self._running, "timing", error)
                continue
            if before is not None:
                self._compare_with(before, found)
            elif self._above_ceilings(found):
                before = _times(found)
                self.run.retire_child()
                continue
            return found

    def _mode_without_reading(self) -> str:
        if not self.cuda:
            return "cpu"
        return "cold" if self.plan.mode == "auto" else self.plan.mode

    def _groups(self, arms: list[Arm], baseline: str) -> list[Timed]:
        by_name = {arm.name: arm for arm in arms}

        def on_step(name: str, text: str) -> None:
            self._running = by_name[kernel_of(name)]
            if text:
                self.run.step(kernel_of(name), text)

        child = self._open(afresh=True)
        telemetry, seed = self.run.telemetry, self.rng.randrange(2**31)

        def drive(names: tuple[str, ...], offset: int = 0) -> Drive:
            more = (on_step, telemetry.sm_mhz, telemetry.slowed)
            return Drive(child, list(names), baseline, self.plan, seed + offset, *more)

        everyone = drive(tuple(by_name))
        if self.plan.name == "fixed":
            reading = rounds.fixed(everyone, self.cuda)
            found = [Timed(Group(MAIN, reading.mode, tuple(by_name)), arms, reading)]
        else:
            found, estimates = [], estimate(everyone, self.cuda)
            if failed := uncapturable(everyone, estimates, self.cuda, self.uncaptured):
                self.uncaptured |= failed
                self.run.retire_child()
                raise Disturbed
            for group in groups(everyone, estimates, self.cuda, self.uncaptured):
                mine = {name: estimates[name] for name in group.arms}
                paired = rounds.Paired(drive(group.arms, len(found)), group.mode, mine, self.cuda, group.graphs)
                found.append(Timed(group, [by_name[name] for name in group.arms], paired.measure()))
                child.call("release")
        self._recheck(child, by_name, [timed.reading for timed in found if timed.reading])
        return found

    # --- above what the device was measured to reach --------------------------------------------------------------

    def _above_ceilings(self, found: list[Timed]) -> list[tuple[Timed, str, str]]:
        """(timed, kernel, why) of every time above a measured ceiling of this GPU."""
        if not self.cuda:
            return []
        l2_bytes = self.run.environment.get("l2_bytes", 0)
        return [
            (timed, arm.name, why)
            for timed in found
            for arm in timed.arms
            if arm.status == "ok" and timed.reading and timed.reading.blocks.get(arm.name)
            if (why := roofline.why_above(
                self.workload.problem, timed.p50_ms(arm.name), self.run.ceilings, timed.reading.touched_once, l2_bytes
            ))
        ]  # fmt: skip

    def _compare_with(self, before: dict[str, float], found: list[Timed]) -> None:
        """After the second process: what it confirms stands, with a note; what it does not is suspect.

        The clock may have moved between the two, or the baseline alone: a kernel that took as long again is confirmed, and so
        is one that stands to the baseline as before. The baseline itself is held against nobody.
        """
        after, base = _times(found), self.run.spec.baseline
        drift = after[base] / before[base] if base in before and base in after else 1.0
        for timed, name, why in self._above_ceilings(found):
            times = f"{before[name]:.4g} ms, then {after[name]:.4g} ms" if name in before else f"{after[name]:.4g} ms"
            moved = after[name] / before[name] if name in before and name != base else 1.0
            if min(abs(moved - 1), abs(moved / drift - 1)) > SAME_AGAIN:
                next(a for a in timed.arms if a.name == name).fail("suspect", f"{why}; two processes disagree: {times}")
            elif timed.reading:
                timed.reading.notes.append(f"{name}: {why}; a second process agrees ({times})")

    # --- correct after --------------------------------------------------------------------------------------------

    def _recheck(self, child: Child, by_name: dict[str, Arm], readings: list[rounds.Reading]) -> None:
        """Outputs kept from timed calls, and one more check on new inputs, decide whether times stand."""
        self.run.step("", "checking timed outputs")
        got = child.call("recheck", VERIFY_LIMIT_S * max(1, len(by_name)))
        child.call("prepare", VERIFY_LIMIT_S, seeds=[self.rng.randrange(2**31)], rotate=False)
        for name, arm in by_name.items():
            mine = [reading for owner, reading in got["readings"] if owner == name]
            self._running = arm
            after = child.call("verify", VERIFY_LIMIT_S, arm=name, seed=self.rng.randrange(2**31), thorough=False)
            flags = {"inputs_changed": after["inputs_changed"] or name in got["changed_inputs"]}
            verdict = judge([*mine, after["reading"]], self.workload.dtype, flags | {"shared": after["shared"]})
            arm.facts["correctness"]["timed_calls_checked"] = len(mine)
            if not verdict["correct"]:
                arm.facts["correctness"] |= {"correct": False, "why": f"in timed calls: {verdict['why']}"}
                arm.fail("incorrect", f"right when checked alone, wrong when timed: {verdict['why']}")
            elif why := self._why_suspect(child, name, readings) or why_leaks(got["grown"].get(name, [])):
                arm.fail("suspect", why)

    def _why_suspect(self, child: Child, name: str, readings: list[rounds.Reading]) -> str:
        """Whether an arm's times can be what they seem: an empty string, or why not, said only if it is so again."""
        call_ns = min(min(reading.medians(name)) for reading in readings if name in reading.blocks)

        def probe(**asked: Any) -> dict[str, Any]:
            got = child.call("probe", VERIFY_LIMIT_S + PROBED_CALLS * call_ns / 1e9, arm=name, **asked)
            if self._silence(got["busy"]):
                raise Disturbed
            return got

        if why := why_probed(probe, lambda: self.rng.randrange(2**31), call_ns):
            return why
        calls = max(2, min(MAX_BATCH, round(BATCH_NS / call_ns)))
        for _ in range(DOUBTS):
            begin = time.monotonic_ns()
            ticks_ns = child.call("block", VERIFY_LIMIT_S, arm=name, calls=calls)["ticks_ns"]
            if not (why := why_outside(sum(ticks_ns), time.monotonic_ns() - begin)):
                break
        return why

    # --- the event ------------------------------------------------------------------------------------------------

    def _emit(self, timed: Timed, members: list[Arm]) -> None:
        reading, baseline = timed.reading, self.run.spec.baseline
        if reading is not None and baseline not in reading.blocks:
            baseline = members[0].name
            reading.notes.append(f"the baseline {self.run.spec.baseline} has no time here: {baseline} stands in for it")
        data = {
            "workload": self.workload.model_dump(),
            "key": self.workload.key,
            "mode": timed.group.mode,
            "group": timed.group.name,
            "baseline": baseline,
            "took_s": round(time.monotonic() - self.begin, 3),
            "telemetry": self.run.telemetry.summary(),
        }
        data |= reading_result(reading, baseline, self.plan.seed)
        data["results"] = [arm_result(arm, reading, baseline, self) for arm in self.arms if arm in members]
        self.run.emit("measured", data)


def arm_of(run: Supervisor, workload: Workload, name: str) -> Arm:
    """A kernel before it is tried: what its declaration already rules out is said without running it."""
    arm = Arm(name)
    try:
        info = catalog.get_kernel(run.spec.operation, name)
    except catalog.UnknownName as error:
        arm.fail("unsupported", str(error))
        return arm
    arm.facts |= {"sha256": info.sha256, "backend": info.backend}
    if info.error:
        arm.fail("failed", info.error)
        return arm
    why = info.why_not_on(run.device.kind, run.device.capability)
    why = why or info.why_not_for(workload.dtype, workload.problem.model_dump())
    if why:
        arm.fail("unsupported", why)
    return arm
