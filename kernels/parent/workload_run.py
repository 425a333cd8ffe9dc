"""One workload of a run: the engine on a measuring child, and its events."""

from __future__ import annotations

import time
from typing import Any

from kernels.analysis.correctness import judge, without_values
from kernels.analysis.peaks import peak_of
from kernels.analysis.statistics import p50_interval
from kernels.contract.arm_result import Status, assignments
from kernels.contract.events import MAIN, HostLoad, Measured
from kernels.contract.replies import Verified
from kernels.parent.arm import Arm, arm_of
from kernels.parent.checking import Check
from kernels.parent.child_process import ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.context import RunContext
from kernels.parent.engine import Engine, Timed
from kernels.parent.groups import Group
from kernels.parent.parts import BaselineTimes, Part, parts
from kernels.parent.parts import judge as judge_baseline
from kernels.parent.reading import joined, of_one_baseline
from kernels.parent.results import Limits, arm_results, json_safe, reading_fields
from kernels.parent.seeds import Draws, secret
from kernels.protocol import Protocol
from kernels.workload import Workload

Statuses = dict[tuple[str, str], Status]
"""(workload key, kernel) -> status in this attempt."""


class WorkloadRun:
    """Measures one workload. `arms` then hold each kernel's status."""

    def __init__(self, context: RunContext, workload: Workload, before: Statuses) -> None:
        self.context, self.workload, self.plan = context, workload, context.spec.protocol
        self.earlier = before
        self.arms = [self._arm(name) for name in context.spec.kernels_of(workload.operation)]
        self.part = Part(self.arms)
        """The arms that are measured now."""
        self.seed = secret() if self.plan.seed is None else self.plan.seed
        self.rng = Draws(f"{self.seed}/{workload.key}")
        self.began = time.monotonic()

    @property
    def baseline(self) -> str:
        return self.context.spec.baseline_of(self.workload.operation)

    def _arm(self, name: str) -> Arm:
        """Skips a kernel that hung in this run: it would hang again, for minutes on every workload."""
        arm = arm_of(self.context.device, self.workload, name)
        if arm.is_ok and arm.environment and name == self.baseline:
            arm.fail(Status.UNSUPPORTED, "a kernel with environment variables of its own cannot be the baseline")
        hung = {key for (key, who), status in self.earlier.items() if who == name and status == Status.TIMED_OUT}
        same = (w for w in self.context.spec.workloads if w.operation == self.workload.operation)
        if arm.is_ok and (where := next((w for w in same if w.key in hung), None)):
            arm.fail(Status.TIMED_OUT, f"skipped: it hung on {where.problem.label()}")
        return arm

    def measure(self) -> list[Measured]:
        """One event per group of arms timed in the same rounds. Arms with environment variables are measured after the
        others, in processes that have these."""
        events: list[Measured] = []
        plain: list[Timed] = []
        session = self.context.session
        try:
            for self.part in parts(self.arms, lambda: self._arm(self.baseline)):
                session.use(self.part.environment)
                timed_groups = self._timed()
                if self.part.environment and self._may_be_slower(timed_groups, plain):
                    session.replace()
                    timed_groups = self._timed()  # one slow process is chance
                    if times := self._baseline_times(timed_groups, plain):
                        judge_baseline(self.part, times)
                plain = plain or timed_groups
                events += self._events(timed_groups)
        finally:
            session.use({})
        return events

    def _timed(self) -> list[Timed]:
        return self._check_alone() if self.plan.verify_only else self._in_processes()

    def _events(self, timed_groups: list[Timed]) -> list[Measured]:
        events = []
        for number, timed in enumerate(timed_groups):
            failed = [arm for arm in self.part.arms if not arm.is_ok and arm not in timed.arms] if number == 0 else []
            events.append(self._event(timed, [*timed.arms, *failed]))
        return events

    def _may_be_slower(self, timed_groups: list[Timed], plain: list[Timed]) -> bool:
        """Whether the baseline took longer in this part than in the part without variables."""
        times = self._baseline_times(timed_groups, plain)
        return times is not None and (times.is_slower is not False or times.is_a_little_slower)

    def _baseline_times(self, timed_groups: list[Timed], plain: list[Timed]) -> BaselineTimes | None:
        """The baseline's times in this part and in the part without variables; None unless both were measured alike."""
        found = []
        for groups in (timed_groups, plain):
            timed = next((one for one in groups if one.reading and self.baseline in one.reading.blocks), None)
            found.append((timed, timed.group.mode if timed else ""))
        (mine, mode), (other, its_mode) = found
        if mine is None or other is None or mode != its_mode:
            return None
        device = self.context.environment["device"]
        margins = [reading_fields(one.reading, self.baseline, device)["margin"] for one in (mine, other)]
        loads = [one.reading.host for one in (mine, other) if one.reading and one.reading.host]
        is_busy = any(HostLoad.model_validate(load).is_busy for load in loads)
        times = mine.p50_ns(self.baseline), other.p50_ns(self.baseline)
        medians = [one.reading.medians(self.baseline) for one in (mine, other) if one.reading]
        intervals = [p50_interval(p50, of) for p50, of in zip(times, medians, strict=True)]
        kind, is_busy = self.context.device.kind, is_busy and not self.context.is_cuda
        return BaselineTimes(kind, *times, margins, is_busy, intervals)

    def _check_alone(self) -> list[Timed]:
        self._verify(self._engine(self.plan, self._checks()))
        return self._check_edges()

    def _in_processes(self) -> list[Timed]:
        """Times the arms in one fresh process after the other, and joins what each measured.

        The first one chooses modes and groups. A group that another process cannot repeat keeps the readings it has.
        """
        engine = self._engine(self.plan, self._checks())
        self._verify(engine)
        timed_groups = engine.time()
        readings = [[timed.reading] for timed in timed_groups]
        for number in range(1, self.plan.processes):
            if not self.part.alive:
                break
            again = self._another_process(number, timed_groups[0].group.mode)
            for timed, before in zip(timed_groups, readings, strict=True):
                before += [one.reading for one in again if one.group == timed.group]
        for timed, each in zip(timed_groups, readings, strict=True):
            if known := [reading for reading in each if reading]:
                timed.reading = joined(of_one_baseline(known, self.baseline))
        return timed_groups

    def _another_process(self, number: int, mode: str) -> list[Timed]:
        self.context.session.replace()
        plan = self.plan.model_copy(update={"mode": mode} if self.context.is_cuda else {})
        engine = self._engine(plan, [Check(self.rng.of_inputs())], f"process {number + 1} of {plan.processes}: ")
        self._verify(engine)
        return engine.time()

    def _verify(self, engine: Engine) -> None:
        engine.verify(lambda: {"load": {}, "compile": {"seed": self.rng.of_inputs()}})

    def _engine(self, plan: Protocol, checks: list[Check], where: str = "") -> Engine:
        """where: begins each of its steps in the progress that people see."""
        context = self.context
        return Engine(
            session=context.session,
            open=lambda afresh: context.session.open(self.workload, afresh),
            problem=self.workload.problem,
            arms=self.part.arms,
            baseline=self.baseline,
            plan=plan,
            judge=self._judge,
            checks=checks,
            rng=self.rng,
            cuda=context.is_cuda,
            telemetry=context.telemetry,
            step=lambda kernel, text: context.progress.step(self.workload, kernel, where + text),
            seen=context.progress.saw,
            ceilings=context.ceilings,
            l2_bytes=context.l2_bytes,
        )

    def _judge(self, name: str, readings: list[dict[str, Any]], flags: dict[str, Any]) -> dict[str, Any]:
        arm = next(arm for arm in self.part.arms if arm.name == name)
        return judge(without_values(readings) if arm.other_work else readings, self.workload.dtype, flags)

    def _checks(self) -> list[Check]:
        """The same checks for every arm, so that references can be shared."""
        seeds = Draws(f"verify/{self.seed}/{self.workload.key}")
        kinds = self.workload.problem.distributions
        return [
            Check(seeds.of_inputs(), kinds[number % len(kinds)], thorough=number == 0)
            for number in range(self.plan.verify_seeds)
        ]

    # --- correctness alone ----------------------------------------------------------------------------------------

    def _check_edges(self) -> list[Timed]:
        """Without timing, correctness is also checked on small workloads of odd sizes."""
        alive = self.part.alive
        for edge in self.workload.problem.edges():
            sizes = edge.model_dump(exclude={"dtype"})
            relative = Workload(operation=self.workload.operation, dtype=edge.dtype, sizes=sizes)
            for arm in alive:
                self._check_edge(arm, relative)
        return [Timed(Group(MAIN, "verify", ()), alive)]

    def _check_edge(self, arm: Arm, relative: Workload) -> None:
        """Checks one arm on one small workload, once a run. "Unsupported" there is not a failure."""
        known, label = self.context.on_edges, relative.problem.label()
        place = (relative.key, arm.name, assignments(self.part.environment))
        if (trial := known.get(place)) is None:
            self.context.progress.step(self.workload, arm.name, f"verify {label}")
            trial = self._tried(arm, relative)
            if trial.status in (Status.OK, Status.INCORRECT, Status.UNSUPPORTED):  # others may pass
                known[place] = trial
        edges = arm.correctness.setdefault("edges", {})
        edges[label] = "right" if trial.is_ok else f"{trial.status}: {trial.why}"
        if trial.status not in (Status.OK, Status.UNSUPPORTED) and arm.is_ok:
            arm.correctness["correct"] = False
            arm.fail(trial.status, f"at {label}: {trial.why}", trial.log)

    def _tried(self, arm: Arm, relative: Workload) -> Arm:
        """How a kernel does on a small workload."""
        session, trial = self.context.session, arm_of(self.context.device, relative, arm.name)
        try:
            session.open(relative)
        except (CommandFailed, ChildDied, ChildTimedOut) as error:
            session.blame(trial, "making inputs", error)
        if trial.is_ok:
            got: Verified | None = session.attempt(
                trial, "verify", self.plan.compile_limit_s, seed=self.rng.of_inputs(), thorough=True
            )
            if got is not None:
                trial.judged(self._judge(arm.name, [got.reading], {}))
        return trial

    # --- the event ------------------------------------------------------------------------------------------------

    def _event(self, timed: Timed, members: list[Arm]) -> Measured:
        reading, baseline = timed.reading, self.baseline
        if reading is not None and baseline not in reading.blocks:
            baseline = members[0].name
            reading.notes.append(f"the baseline {self.baseline} has no time here; {baseline} replaces it")
        device = self.context.environment["device"]
        limits = Limits(
            self.workload.problem,
            device,
            peak_of(device, self.context.device.max_sm_mhz),
            self.context.l2_bytes,
            self.context.ceilings if self.context.is_cuda else None,
        )
        mine = [arm for arm in self.part.arms if arm in members]
        results = arm_results(mine, reading, baseline, limits, self.seed)
        shared: dict[str, Any] = json_safe(reading_fields(reading, baseline, device))
        shared["protocol"] = shared.get("protocol", {}) | {"seed": self.seed}
        shared["margin"] = max(shared["margin"], self.part.margin)
        shared["notes"] = [*shared.get("notes", []), *self.part.notes]
        return Measured(
            workload=self.workload,
            mode=timed.group.mode,
            group=self.part.group(timed.group.name),
            baseline=baseline,
            took_s=round(time.monotonic() - self.began, 3),
            timing=self.context.session.stopwatch.take(),
            telemetry=self.context.telemetry.summary() | {"host": reading.host if reading else None},
            results=results,
            **shared,
        )
