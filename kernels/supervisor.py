"""The parent of a measurement: runs a RunSpec on one device through a measuring child, one workload at a time.

It owns seeds, statistics and verdicts; the child reports raw readings. A crash, a hang or a flood belongs to the
kernel that was running: that kernel gets it as its result, the child starts again without it, the run goes on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from kernels import catalog
from kernels.arm import Arm
from kernels.device import Device, locked
from kernels.instrument import rounds, telemetry
from kernels.instrument.environment import commit, fingerprint
from kernels.instrument.verify import judge, why_leaks, why_outside, why_remembers
from kernels.process import Cancelled, Child, ChildDied, ChildTimedOut, CommandFailed
from kernels.results import arm_result, reading_result, storable
from kernels.workload import RunSpec, Workload

VERIFY_LIMIT_S = 120.0
LIVE_EVERY_S = 0.3
BATCH_NS = 50e6
"""Length of the batch whose calls are held against the parent's own clock."""
MAX_BATCH = 1000
PROBES, FEW_PROBES = 7, 2
"""Pairs of calls on new and on known values; few of a kernel that takes long."""
LONG_NS = 20e6
DOUBTS = 3
"""A measured suspicion counts only when it comes up this many times in a row."""
LOG_TAIL = 16_000
ERROR_TAIL = 4_000


class WrongEnvironment(Exception):
    """A resumed run found another driver, torch, ... than its first results: they may not be mixed."""


class Disturbed(Exception):
    """Something that a kernel left running was busy beside the others: measured again, without that kernel."""


Group = tuple[str, str, rounds.Reading | None, list[Arm]]
"""Arms that were timed together: name, mode, what was read, members."""
Emit = Callable[[str, dict[str, Any]], None]
"""Takes an event's kind and data: started, measured, crosschecked."""


class Supervisor:
    """One run. `emit` gets what must not be lost; `live` gets progress, which may be."""

    def __init__(
        self,
        spec: RunSpec,
        device: Device,
        emit: Emit,
        live: Callable[[dict[str, Any]], None] = lambda state: None,
        should_stop: Callable[[], bool] = lambda: False,
        warm_child: Child | None = None,
    ) -> None:
        self.spec, self.device, self.live, self.should_stop = spec, device, live, should_stop
        self.emit: Emit = lambda kind, data: emit(kind, storable(data))
        self.warm_child = warm_child
        self.child: Child | None = None
        self.logs: list[str] = []
        self.position, self.last_live = 0, 0.0
        self.current: tuple[int, str, str] | None = None
        self.deadly: set[tuple[str, str]] = set()
        """(workload's key, kernel) that crashed or hung: not run again for the cross-check."""

    # --- the run --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Measures what is not done yet. Raises Cancelled; anything that belongs to a kernel becomes its result."""
        try:
            with locked(self.device, self.should_stop), telemetry.watching(self.device) as self.telemetry:
                self._start()
                done = set(self.spec.done)
                for self.position, workload in enumerate(self.spec.workloads):
                    if workload.key not in done:
                        self._measure_workload(workload)
                self._crosscheck()
        except InterruptedError:
            raise Cancelled from None
        finally:
            if self.child:
                self.child.close()
            if self.warm_child:
                self.warm_child.close()

    def _start(self) -> None:
        environment = self._ensure_child().wait_ready()
        environment |= {"driver": self.device.driver, "commit": commit(), "max_sm_mhz": self.device.max_sm_mhz}
        self.environment, self.fingerprint = environment, fingerprint(environment)
        if self.spec.fingerprint and self.spec.fingerprint != self.fingerprint:
            raise WrongEnvironment(
                "the environment of this device has changed since this run began (driver, torch, ...): "
                "run it again as a new run"
            )
        preflight = {"others": self.telemetry.others(), "start": self.telemetry.now()}
        self.emit("started", {"environment": environment, "fingerprint": self.fingerprint, "preflight": preflight})

    def _ensure_child(self) -> Child:
        """The child at work: the warm one first, a new one after a crash."""
        if self.child is None or not self.child.alive:
            self._retire_child()
            self.child, self.warm_child = self.warm_child or Child(self.device), None
            self.child.should_stop = self.should_stop
        return self.child

    def _retire_child(self) -> None:
        if self.child is not None:
            self.logs.append(self.child.log.tail())
            self.child.close()
            self.child = None

    def log_tail(self) -> str:
        parts = [*self.logs, self.child.log.tail() if self.child else ""]
        return "".join(parts)[-LOG_TAIL:]

    # --- one workload ---------------------------------------------------------------------------------------------

    def _measure_workload(self, workload: Workload) -> None:
        begin = time.monotonic()
        self.workload = workload
        self.rng = random.Random(f"{self.spec.protocol.seed}/{workload.key}")
        self.arms = arms = [self._arm(name) for name in self.spec.kernels]
        opened = False
        for arm in arms:
            if arm.status == "ok":
                opened = self._verify(arm, opened)
        groups = self._without_timing(arms) if self.spec.protocol.verify_only else self._measure_groups(arms)
        self.deadly |= {(workload.key, arm.name) for arm in arms if arm.status in ("crashed", "timed out")}
        for number, (name, mode, reading, members) in enumerate(groups):
            failed = [a for a in arms if a.status != "ok" and a not in members] if number == 0 else []
            self._emit_measured(name, mode, reading, [*members, *failed], arms, begin)

    def _arm(self, name: str) -> Arm:
        """A kernel before it is tried: what its declaration already rules out is said without running it."""
        arm = Arm(name)
        try:
            info = catalog.get_kernel(self.spec.operation, name)
        except catalog.UnknownName as error:
            arm.fail("unsupported", str(error))
            return arm
        arm.facts |= {"sha256": info.sha256, "backend": info.backend}
        why = info.why_not_on(self.device.kind, self.device.capability)
        why = why or info.why_not_for(self.workload.dtype, self.workload.problem.model_dump())
        if why:
            arm.fail("unsupported", why)
        return arm

    def _attempt(self, arm: Arm, do: str, limit_s: float, **arguments: Any) -> dict[str, Any] | None:
        """A command that belongs to one arm. What goes wrong becomes the arm's result, and None comes back."""
        child = self._ensure_child()
        try:
            return child.call(do, limit_s, arm=arm.name, **arguments)
        except (CommandFailed, ChildDied, ChildTimedOut) as error:
            self._blame(arm, do, error)
            return None

    def _blame(self, arm: Arm, doing: str, error: Exception) -> None:
        log = self.child.log.tail(ERROR_TAIL) if self.child else ""
        if arm.blame(doing, error, log):
            self._retire_child()

    def _verify(self, arm: Arm, opened: bool) -> bool:
        """Loads, compiles and checks one arm, alone, so that a crash is surely its own. True: the child has the workload."""
        self._step(arm.name, "compile")
        if not opened or self.child is None or not self.child.alive:
            self._ensure_child().call("open", workload=self.workload.model_dump())
        limit = self.spec.protocol.compile_limit_s
        loaded = self._attempt(arm, "load", limit)
        if loaded is None:
            return self.child is not None
        arm.facts |= loaded
        compiled = self._attempt(arm, "compile", limit, seed=self.rng.randrange(2**31))
        if compiled is None:
            return self.child is not None
        arm.facts |= compiled
        readings: list[dict[str, Any]] = []
        flags: dict[str, Any] = {"inputs_changed": False, "shared": False, "deterministic": True}
        for number, seed in enumerate(self._verify_seeds()):
            self._step(arm.name, f"verify {number + 1} of {self.spec.protocol.verify_seeds}")
            got = self._attempt(arm, "verify", VERIFY_LIMIT_S, seed=seed, thorough=number == 0)
            if got is None:
                return self.child is not None
            if self._silence(got["busy"]):
                return arm.status != "ok" or self._verify(arm, opened=False)
            readings.append(got["reading"])
            flags["inputs_changed"] |= got["inputs_changed"]
            flags["shared"] |= got["shared"]
            flags["deterministic"] = flags["deterministic"] and got["deterministic"]
        verdict = judge(readings, self.workload.dtype, flags)
        arm.facts["correctness"] = verdict
        if not verdict["correct"]:
            arm.fail("incorrect", verdict["why"])
        return True

    def _silence(self, busy: list[list[str]]) -> bool:
        """Ends what kernels left running, with the child, and says so of them. True: there was something."""
        busy = [[owner, what] for owner, what in busy if owner]
        for owner, what in busy:
            for arm in self.arms:
                if arm.name == owner and arm.status in ("ok", "incorrect"):
                    arm.fail("suspect", f"left {what} running that is busy while other kernels are measured")
        if busy:
            self._retire_child()
        return bool(busy)

    def _verify_seeds(self) -> list[int]:
        """The same for every arm of a workload, so that references can be shared."""
        seeds = random.Random(f"verify/{self.spec.protocol.seed}/{self.workload.key}")
        return [seeds.randrange(2**31) for _ in range(self.spec.protocol.verify_seeds)]

    # --- timing ---------------------------------------------------------------------------------------------------

    def _measure_groups(self, arms: list[Arm]) -> list[Group]:
        """Times the arms that are right, together. A kernel that fails now leaves, and the rest is measured again."""
        while True:
            alive = [arm for arm in arms if arm.status == "ok"]
            baseline = next((arm for arm in alive if arm.name == self.spec.baseline), None)
            if not alive:
                return [("main", self._mode_without_reading(), None, [])]
            self._running = alive[0]
            try:
                return self._try_groups(alive, (baseline or alive[0]).name, cuda=self.device.kind == "cuda")
            except Disturbed:
                continue
            except (CommandFailed, ChildDied, ChildTimedOut) as error:
                self._blame(self._running, "timing", error)

    def _without_timing(self, arms: list[Arm]) -> list[Group]:
        return [("main", "verify", None, [arm for arm in arms if arm.status == "ok"])]

    def _mode_without_reading(self) -> str:
        if self.device.kind == "cpu":
            return "cpu"
        return "cold" if self.spec.protocol.mode == "auto" else self.spec.protocol.mode

    def _try_groups(self, arms: list[Arm], baseline: str, cuda: bool) -> list[Group]:
        by_name = {arm.name: arm for arm in arms}

        def on_step(name: str, text: str) -> None:
            self._running = by_name[rounds.kernel_of(name)]
            if text:
                self._step(rounds.kernel_of(name), text)

        child = self._ensure_child()
        child.call("open", workload=self.workload.model_dump())
        plan, seed = self.spec.protocol, self.rng.randrange(2**31)
        sm_mhz = self.telemetry.sm_mhz
        names = [arm.name for arm in arms]
        drive = rounds.Drive(child, names, baseline, plan, seed, on_step, sm_mhz)
        if plan.name == "fixed":
            reading = rounds.fixed(drive, cuda)
            self._recheck(by_name, [reading])
            return [("main", reading.mode, reading, arms)]
        estimates = rounds.estimate(drive, cuda)
        found: list[Group] = []
        for name, mode, members in self._groups(drive, estimates, cuda):
            group = rounds.Drive(child, members, baseline, plan, seed + len(found), on_step, sm_mhz)
            reading = rounds.Paired(group, mode, {m: estimates[m] for m in members}, cuda).measure()
            child.call("release")
            found.append((name, mode, reading, [by_name[m] for m in members]))
        self._recheck(by_name, [reading for _, _, reading, _ in found if reading])
        return found

    def _groups(
        self, drive: rounds.Drive, estimates: dict[str, rounds.Estimate], cuda: bool
    ) -> list[tuple[str, str, list[str]]]:
        """Arms that can be measured alike: all in one group, but for those that graphs or gates cannot do."""
        mode = rounds.choose_mode(drive.plan, estimates, cuda)
        if not cuda:
            return [("main", mode, drive.arms)]
        odd = [arm for arm in drive.arms if estimates[arm].synchronises]
        if mode == "graph":
            rounds.prepare(drive, rotate=False)
            odd += [arm for arm in drive.arms if arm not in odd and not self._capturable(drive, arm)]
        main = [arm for arm in drive.arms if arm not in odd]
        if drive.baseline in odd or not odd:
            return [("main", "cold" if odd and mode == "graph" else mode, drive.arms)]
        groups = [("main", mode, main)] if len(main) > 1 or not odd else []
        return [*groups, ("eager-launch", "cold", [drive.baseline, *odd])]

    def _capturable(self, drive: rounds.Drive, arm: str) -> bool:
        try:
            drive.call(arm, "capture")
            return True
        except CommandFailed as error:
            if error.kind == "suspect":
                raise
            return False

    def _recheck(self, by_name: dict[str, Arm], readings: list[rounds.Reading]) -> None:
        """Correct after: outputs kept from timed calls, and one more check on new inputs, decide whether times stand."""
        child = self._ensure_child()
        self._step("", "checking timed outputs")
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
        calls = max(2, min(MAX_BATCH, round(BATCH_NS / call_ns)))
        pairs = FEW_PROBES if call_ns > LONG_NS else PROBES
        why = ""
        for doubt in range(DOUBTS):
            seeds = [self.rng.randrange(2**31) for _ in range(pairs)]
            probe = child.call("probe", VERIFY_LIMIT_S, arm=name, seeds=seeds)
            if doubt == 0 and self._silence(probe["busy"]):
                raise Disturbed
            if not (why := why_remembers(probe["fresh_ns"], probe["again_ns"])):
                break
        for _ in range(0 if why else DOUBTS):
            begin = time.monotonic_ns()
            ticks_ns = child.call("block", VERIFY_LIMIT_S, arm=name, calls=calls)["ticks_ns"]
            if not (why := why_outside(sum(ticks_ns), time.monotonic_ns() - begin)):
                break
        return why

    # --- events ---------------------------------------------------------------------------------------------------

    def _emit_measured(
        self, group: str, mode: str, reading: rounds.Reading | None, members: list[Arm], arms: list[Arm], begin: float
    ) -> None:
        baseline = self.spec.baseline
        if reading is not None and baseline not in reading.blocks:
            baseline = members[0].name
            reading.notes.append(f"the baseline {self.spec.baseline} has no time here: {baseline} stands in for it")
        data = {
            "workload": self.workload.model_dump(),
            "key": self.workload.key,
            "mode": mode,
            "group": group,
            "baseline": baseline,
            "took_s": round(time.monotonic() - begin, 3),
            "telemetry": self.telemetry.summary(),
        }
        data |= reading_result(reading, baseline, self.spec.protocol.seed)
        data["results"] = [
            arm_result(arm.name, arm.status, arm.why, arm.log, arm.facts, reading, baseline, self)
            for arm in arms
            if arm in members
        ]
        self.emit("measured", data)

    def _crosscheck(self) -> None:
        """In a fresh child, after all timing (profilers disturb launches): the kernels that really ran, by name."""
        self._retire_child()
        seen: list[dict[str, Any]] = []
        for self.position, workload in enumerate(self.spec.workloads):
            self.workload, opened = workload, False
            for name in self.spec.kernels:
                if (workload.key, name) in self.deadly or self._arm(name).status != "ok":
                    continue
                self._step(name, "cross-check")
                try:
                    child = self._ensure_child()
                    if not opened:
                        child.call("open", workload=workload.model_dump())
                        opened = True
                    ran = child.call("profile", self.spec.protocol.compile_limit_s, arm=name, seed=1)["kernels"]
                    seen.append({"key": workload.key, "kernel": name, "ran": ran})
                except (CommandFailed, ChildDied, ChildTimedOut):
                    opened = False  # it failed before and has its result; or it will show as not cross-checked
        self.emit("crosschecked", {"seen": seen})

    def _step(self, kernel: str, text: str) -> None:
        """Progress, at most a few times a second."""
        now = time.monotonic()
        state = (self.position, kernel, text.split(" ")[0])
        if state == self.current and now - self.last_live < LIVE_EVERY_S:
            return
        self.current, self.last_live = state, now
        self.live(
            {
                "position": self.position,
                "total": len(self.spec.workloads),
                "workload": self.workload.label,
                "kernel": kernel,
                "step": text,
                "log": self.log_tail()[-8000:],
                "telemetry": self.telemetry.now(),
            }
        )
