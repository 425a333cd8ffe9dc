"""The engine of one workload: checks every arm alone, times all together, checks every arm again.

Runs use it on a measuring child, measure() in the caller's process: the session makes the difference. A crash, a hang
or a flood is the result of the kernel that was running; the others continue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from kernels.analysis import roofline
from kernels.analysis.blocks import Estimate, by_graph, choose_mode
from kernels.analysis.suspicion import PROBE_SETS
from kernels.contract.arm_result import Status, Verdict
from kernels.contract.events import EAGER_LAUNCH, MAIN
from kernels.contract.replies import Prepared, Quiet, Rechecked, Verified
from kernels.host.telemetry import Telemetry
from kernels.operations.base import Operation
from kernels.parent import rounds
from kernels.parent.arm import Arm
from kernels.parent.blame import Blame
from kernels.parent.checking import Check, drawn_again, unusual
from kernels.parent.child_process import ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.doubts import Doubts
from kernels.parent.drive import Drive, kernel_of
from kernels.parent.estimate import estimate
from kernels.parent.fixed import fixed
from kernels.parent.groups import Group, groups, together, uncapturable
from kernels.parent.reading import Reading
from kernels.parent.seeds import Draws
from kernels.parent.session import Session
from kernels.protocol import Protocol
from kernels.workload import Ceilings

VERIFY_LIMIT_S = 120.0
SAME_AGAIN = 0.05
"""A time above a measured ceiling is believed if a second process measures the same time, or the same multiple of the
baseline, within this."""
NS_PER_MS = 1e6


class RetryInNewProcess(Exception):
    """Timing needs a new process: a kernel left work running, a capture failed, or no process could begin."""


@dataclass
class Timed:
    """A group of arms with its reading; no reading if nothing was timed."""

    group: Group
    arms: list[Arm]
    reading: Reading | None = None

    def p50_ns(self, name: str) -> float:
        assert self.reading is not None
        return median(tick for block in self.reading.blocks[name] for tick in block)


Judge = Callable[[str, list[dict[str, Any]], dict[str, Any]], dict[str, Any]]
"""(arm, readings of its outputs, flags seen beside them) -> {"correct", "why", ...}"""


@dataclass
class Engine:
    """Measures one workload on one session."""

    session: Session
    open: Callable[[bool], None]
    """Makes the workload the session's current one. True: anew."""
    problem: Operation
    arms: list[Arm]
    baseline: str
    plan: Protocol
    judge: Judge
    checks: Sequence[Check]
    rng: Draws
    cuda: bool
    telemetry: Telemetry
    step: Callable[[str, str], None] = lambda kernel, text: None
    """Reports progress: a kernel (or empty) and its step."""
    seen: Callable[[str, Mapping[str, list[list[float]]]], None] = lambda baseline, blocks: None
    """Shows what the rounds measured so far."""
    ceilings: Ceilings | None = None
    l2_bytes: int = 0

    def __post_init__(self) -> None:
        self.uncaptured: dict[str, str] = {}
        """Arms that could not be captured as graphs, and why."""
        self.doubts, self.blame = Doubts(self), Blame(self)
        self.began = time.monotonic()
        self.input_bytes = 0
        """Of one input set, after timing."""
        self.notes: list[str] = []
        """Notes on how all arms were launched."""

    @property
    def alive(self) -> list[Arm]:
        return [arm for arm in self.arms if arm.is_ok]

    # --- correct before -------------------------------------------------------------------------------------------

    def verify(self, prepare: Callable[[], dict[str, dict[str, Any]]] = dict) -> None:
        """Checks each arm alone, so that a crash has one cause.

        prepare: commands before an arm's first check, with their arguments.
        """
        for arm in self.arms:
            if arm.is_ok:
                self._verify(arm, prepare)

    def _verify(self, arm: Arm, prepare: Callable[[], dict[str, dict[str, Any]]]) -> None:
        self.step(arm.name, "compile")
        if not self._opened(False):
            return
        for do, arguments in prepare().items():
            done = self.session.attempt(arm, do, self.plan.compile_limit_s, **arguments)
            if done is None:
                return
            arm.facts |= done.model_dump(exclude_unset=True)
        quiet: Quiet | None = self.session.attempt(arm, "quiet", VERIFY_LIMIT_S)
        if quiet is None or self._verified_anew(quiet.busy, arm, prepare):
            return
        readings: list[dict[str, Any]] = []
        flags: dict[str, Any] = {"inputs_changed": False, "shared": False, "deterministic": True}
        for number, check in enumerate(self.checks, 1):
            self.step(arm.name, f"verify {number} of {len(self.checks)}")
            asked = {"seed": check.seed, "thorough": check.thorough, "distribution": check.distribution}
            asked["look"] = number in (1, len(self.checks))
            got: Verified | None = self.session.attempt(arm, "verify", VERIFY_LIMIT_S, **asked)
            if got is None or self._verified_anew(got.busy, arm, prepare):
                return
            readings.append(got.reading)
            flags["inputs_changed"] |= got.inputs_changed
            flags["shared"] |= got.shared
            flags["deterministic"] = flags["deterministic"] and got.deterministic
        arm.judged(self.judge(arm.name, readings, flags))
        self._watch(arm)

    def _verified_anew(
        self, busy: list[tuple[str, str]], arm: Arm, prepare: Callable[[], dict[str, dict[str, Any]]]
    ) -> bool:
        """Whether work was left running. Then it is ended, and the arm is checked from the beginning unless it did that."""
        if not self.end_what_is_busy(busy):
            return False
        if arm.is_ok:
            self._verify(arm, prepare)
        return True

    def _watch(self, arm: Arm) -> None:
        """What differs after an arm ran, or lives on, is this arm's: no other arm is checked beside it."""
        try:
            got = self.blame.watch(arm)
        except (CommandFailed, ChildDied, ChildTimedOut) as error:
            self.session.blame(arm, "watch", error)
            return
        arm.leaves_threads |= got.threads
        if self.session.replaceable and (got.threads or got.must_replace):
            self.session.replace()

    def _opened(self, afresh: bool) -> bool:
        """Makes the workload the current one. False: no process could, so every arm has failed."""
        try:
            self.open(afresh)
        except (CommandFailed, ChildDied, ChildTimedOut) as error:
            if not self.session.replaceable:
                raise
            for arm in self.alive:
                self.session.blame(arm, "making inputs", error)
            return False
        return True

    def end_what_is_busy(self, busy: list[tuple[str, str]]) -> bool:
        """Replaces the process if kernels left work running, and fails those kernels. True: there was some."""
        busy = [(owner, what) for owner, what in busy if owner]
        for owner, what in busy:
            for arm in self.arms:
                if arm.name == owner and arm.status in (Status.OK, Status.INCORRECT):
                    arm.fail(Status.SUSPECT, f"left {what} busy while other kernels are measured")
        if busy:
            self.session.replace()
        return bool(busy)

    # --- timing ---------------------------------------------------------------------------------------------------

    def time(self) -> list[Timed]:
        """Times the correct arms together. If an arm fails meanwhile, the others are measured again without it.

        If a time is above a measured ceiling, all are measured once more in a new process.
        """
        before: list[Timed] | None = None
        while self.alive:
            self.running = self.alive[0]
            try:
                timed_groups = self._groups(self.alive)
            except RetryInNewProcess:
                continue
            except (CommandFailed, ChildDied, ChildTimedOut) as error:
                self.blame.errors(error)
                continue
            if before is not None:
                self._compare_with(before, timed_groups)
            elif self.session.replaceable and self._above_ceilings(timed_groups):
                before = timed_groups
                self.session.replace()
                continue
            return timed_groups
        return [Timed(Group(MAIN, self._mode_without_reading(), ()), [])]

    def _mode_without_reading(self) -> str:
        if not self.cuda:
            return "cpu"
        return "cold" if self.plan.mode == "auto" else self.plan.mode

    def _groups(self, arms: list[Arm]) -> list[Timed]:
        by_name = {arm.name: arm for arm in arms}
        if not self._opened(True):
            raise RetryInNewProcess
        self.began = time.monotonic()
        drives = Drives(self, by_name)
        everyone = drives.of(tuple(by_name))
        if self.plan.name == "fixed":
            reading = self._watched(lambda: fixed(everyone, self.cuda))
            timed_groups = [Timed(Group(MAIN, reading.mode, tuple(by_name)), arms, reading)]
        else:
            timed_groups = self._paired(drives, everyone, by_name)
        self._recheck(by_name, [timed for timed in timed_groups if timed.reading])
        return timed_groups

    def _paired(self, drives: Drives, everyone: Drive, by_name: dict[str, Arm]) -> list[Timed]:
        estimates = estimate(everyone, self.cuda)
        if failed := uncapturable(everyone, estimates, self.cuda, self.uncaptured):
            self.uncaptured |= failed
            if self.session.replaceable:
                self.session.replace()
                raise RetryInNewProcess
        parts = groups(everyone, estimates, self.cuda, self.uncaptured)
        if not self.session.replaceable:
            parts = [together(parts, everyone.arms)]
            self._note_launches(parts[0], everyone, estimates)
        timed_groups: list[Timed] = []
        for group in parts:
            mine = {name: estimates[name] for name in group.arms}
            paired = rounds.Paired(drives.of(group.arms, len(timed_groups)), group.mode, mine, self.cuda, group.graphs)
            timed_groups.append(Timed(group, [by_name[name] for name in group.arms], self._watched(paired.measure)))
            self._note_uncaptured(timed_groups[-1])
            _note_waiting(timed_groups[-1], estimates)
            self.session.call("release")
        return timed_groups

    def _watched(self, measure: Callable[[], Reading]) -> Reading:
        """A reading with the load of the host by others meanwhile."""
        self.telemetry.load.begin()
        reading = measure()
        reading.host = self.telemetry.load.end()
        return reading

    def _note_uncaptured(self, timed: Timed) -> None:
        for arm, why in self.uncaptured.items():
            if timed.reading and arm in timed.group.arms and not timed.group.graphs:
                timed.reading.notes.append(
                    f"{arm} is launched call by call, because it cannot be captured as a CUDA graph: {why}"
                )

    def _note_launches(self, group: Group, everyone: Drive, estimates: dict[str, Estimate]) -> None:
        if by_graph(choose_mode(self.plan, estimates, self.cuda), estimates) and not group.graphs:
            self.notes.append("not every callable can be captured as a CUDA graph: all were launched call by call")
        for arm in everyone.arms:
            if estimates[arm].synchronises:
                self.notes.append(f"{arm} synchronises with the device: its times include launch gaps")

    # --- above what the device was measured to reach --------------------------------------------------------------

    def _above_ceilings(self, timed_groups: list[Timed]) -> list[tuple[Timed, Arm, str]]:
        """(timed, arm, why) of every time above a measured ceiling."""
        if not self.cuda:
            return []
        return [
            (timed, arm, why)
            for timed in timed_groups
            for arm in timed.arms
            if arm.is_ok and not arm.other_work and timed.reading and timed.reading.blocks.get(arm.name)
            if (why := roofline.why_above(
                self.problem, timed.p50_ns(arm.name) / NS_PER_MS, self.ceilings, timed.reading.touched_once, self.l2_bytes
            ))
        ]  # fmt: skip

    def _compare_with(self, first: list[Timed], second: list[Timed]) -> None:
        """Compares with the second process: a confirmed time stays, with a note; any other is suspect.

        Confirmed: the same time, or the same ratio to the baseline (the clock may change between processes). The
        baseline is compared with its own time only.
        """
        before, after = _times_ms(first), _times_ms(second)
        drift = after[self.baseline] / before[self.baseline] if self.baseline in before.keys() & after.keys() else 1.0
        for timed, arm, why in self._above_ceilings(second):
            now, was = after[arm.name], before.get(arm.name)
            times = f"{now:.4g} ms" if was is None else f"{was:.4g} ms, then {now:.4g} ms"
            moved = 1.0 if was is None or arm.name == self.baseline else now / was
            if min(abs(moved - 1), abs(moved / drift - 1)) > SAME_AGAIN:
                arm.fail(Status.SUSPECT, f"{why}; a second process measured another time: {times}")
            elif timed.reading:
                timed.reading.notes.append(f"{arm.name}: {why}; a second process agrees ({times})")

    # --- correct after --------------------------------------------------------------------------------------------

    def _recheck(self, by_name: dict[str, Arm], timed_groups: list[Timed]) -> None:
        """Checks the outputs kept from timed calls, and one more call on new inputs: they decide whether times
        stand."""
        self.blame.changes()
        self.step("", "checking timed outputs")
        got: Rechecked = self.session.call("recheck", VERIFY_LIMIT_S * max(1, len(by_name)))
        leaks = self.blame.leaks(got.grown)
        prepared: Prepared = self.session.call("prepare", VERIFY_LIMIT_S, seeds=self.seeds(PROBE_SETS), sets=PROBE_SETS)
        self.input_bytes = prepared.input_bytes
        others = self._checked_again(by_name)
        for name, arm in by_name.items():
            mine = [reading for owner, reading in got.readings if owner == name]
            self.running = arm
            after: Verified = self.session.call("verify", VERIFY_LIMIT_S, arm=name, seed=self.seed(), thorough=False)
            flags = {"inputs_changed": after.inputs_changed or name in got.changed_inputs}
            verdict = self.judge(name, [*mine, after.reading, *others[name]], flags | {"shared": after.shared})
            arm.correctness["timed_calls_checked"] = len(mine)
            arm.rechecked = verdict
            if verdict["correct"] is False:
                arm.correctness |= {"correct": False, "why": f"in timed calls: {verdict['why']}"}
                arm.fail(Status.INCORRECT, f"correct when checked alone, wrong when timed: {verdict['why']}")
            elif not verdict.get("word") and (why := self.doubts.why(name, timed_groups) or leaks.get(name, "")):
                arm.fail(Status.SUSPECT, why)
            elif unclear := self.doubts.unclear.get(name):
                arm.rechecked = verdict | {"word": Verdict.UNDECIDED, "why": unclear}
            if arm.is_ok:
                self.blame.after(arm)

    def _checked_again(self, by_name: dict[str, Arm]) -> dict[str, list[dict[str, Any]]]:
        """Readings of each arm on other distributions. All arms get the same inputs, which are then let go."""
        asked = [{"seed": self.seed(), "thorough": False, "distribution": kind} for kind in drawn_again(self.checks)]
        found: dict[str, list[dict[str, Any]]] = {}
        for name, arm in by_name.items():
            self.running = arm
            found[name] = [self.session.call("verify", VERIFY_LIMIT_S, arm=name, **one).reading for one in asked]
        self.session.call("forget_references")
        return found

    def retry(self) -> RetryInNewProcess:
        """To be raised: times again in a new process."""
        if self.session.replaceable:
            self.session.replace()
        return RetryInNewProcess()

    def seed(self) -> int:
        return self.rng.of_inputs()

    def seeds(self, count: int) -> list[int]:
        return [self.seed() for _ in range(count)]


class Drives:
    """Makes the drives of groups of arms, all from one seed."""

    def __init__(self, engine: Engine, by_name: dict[str, Arm]) -> None:
        self.engine, self.by_name = engine, by_name
        self.seed = engine.seed()
        self.baseline = engine.baseline if engine.baseline in by_name else next(iter(by_name))

    def of(self, names: tuple[str, ...], offset: int = 0) -> Drive:
        engine, known = self.engine, self.engine.telemetry
        return Drive(
            engine.session, list(names), self.baseline, engine.plan, self.seed + offset, self._on_step,
            known.sm_mhz, known.slowed, known.load.look, engine.seen, unusual(engine.checks),
        )  # fmt: skip

    def _on_step(self, name: str, text: str) -> None:
        self.engine.running = self.by_name[kernel_of(name)]
        if text:
            self.engine.step(kernel_of(name), text)


def _times_ms(timed_groups: list[Timed]) -> dict[str, float]:
    """Kernel -> p50 of each timed kernel, from its first group."""
    return {
        arm.name: timed.p50_ns(arm.name) / NS_PER_MS
        for timed in reversed(timed_groups)
        for arm in timed.arms
        if timed.reading and timed.reading.blocks.get(arm.name)
    }


def _note_waiting(timed: Timed, estimates: dict[str, Estimate]) -> None:
    """Says of a group with a baseline of its own which arms are there because they wait for the device themselves."""
    if timed.group.name == EAGER_LAUNCH and timed.reading:
        timed.reading.notes += [
            f"{arm} waits for the device itself, so it is launched call by call, and so is its baseline"
            for arm in timed.group.arms
            if estimates[arm].synchronises
        ]
