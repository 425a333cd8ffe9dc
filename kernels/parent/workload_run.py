"""One workload of a run: the engine on a measuring child, and its events."""

from __future__ import annotations

import time
from typing import Any

from kernels.analysis.correctness import judge
from kernels.contract.arm_result import Status
from kernels.contract.events import Measured
from kernels.contract.replies import Verified
from kernels.operations.base import DISTRIBUTIONS
from kernels.parent.arm import Arm, arm_of
from kernels.parent.context import RunContext
from kernels.parent.engine import Check, Engine, Timed
from kernels.parent.groups import MAIN, Group
from kernels.parent.results import Limits, arm_result, json_safe, reading_fields, without_ratio
from kernels.parent.seeds import Draws, secret
from kernels.workload import Workload

Statuses = dict[tuple[str, str], Status]
"""(workload key, kernel) -> status in this attempt."""


class WorkloadRun:
    """Measures one workload. `arms` then hold each kernel's status."""

    def __init__(self, context: RunContext, workload: Workload, before: Statuses) -> None:
        self.context, self.workload, self.plan = context, workload, context.spec.protocol
        self.arms = [self._arm(name, before) for name in context.spec.kernels]
        self.seed = secret() if self.plan.seed is None else self.plan.seed
        self.rng = Draws(f"{self.seed}/{workload.key}")
        self.began = time.monotonic()

    def _arm(self, name: str, before: Statuses) -> Arm:
        """Skips a kernel that hung in this run: it would hang again, for minutes on every workload."""
        arm = arm_of(self.context.device, self.workload, name)
        hung = next((key for (key, who), s in before.items() if who == name and s == Status.TIMED_OUT), "")
        if arm.is_ok and hung:
            where = next(w for w in self.context.spec.workloads if w.key == hung)
            arm.fail(Status.TIMED_OUT, f"skipped: it hung on {where.problem.label()}")
        return arm

    def measure(self) -> list[Measured]:
        """One event per group of arms timed in the same rounds."""
        engine = self._engine()
        engine.verify(lambda: {"load": {}, "compile": {"seed": self.rng.of_inputs()}})
        found = self._check_edges() if self.plan.verify_only else engine.time()
        events = []
        for number, timed in enumerate(found):
            failed = [arm for arm in self.arms if not arm.is_ok and arm not in timed.arms] if number == 0 else []
            events.append(self._event(timed, [*timed.arms, *failed]))
        return events

    def _engine(self) -> Engine:
        context = self.context
        return Engine(
            session=context.session,
            open=lambda afresh: context.session.open(self.workload, afresh),
            problem=self.workload.problem,
            arms=self.arms,
            baseline=context.spec.baseline,
            plan=self.plan,
            judge=lambda arm, readings, flags: judge(readings, self.workload.dtype, flags),
            checks=self._checks(),
            rng=self.rng,
            cuda=context.is_cuda,
            telemetry=context.telemetry,
            step=lambda kernel, text: context.progress.step(self.workload, kernel, text),
            ceilings=context.ceilings,
            l2_bytes=context.l2_bytes,
        )

    def _checks(self) -> list[Check]:
        """The same checks for every arm, so that references can be shared."""
        seeds = Draws(f"verify/{self.seed}/{self.workload.key}")
        return [
            Check(seeds.of_inputs(), DISTRIBUTIONS[number % len(DISTRIBUTIONS)], thorough=number == 0)
            for number in range(self.plan.verify_seeds)
        ]

    # --- correctness alone ----------------------------------------------------------------------------------------

    def _check_edges(self) -> list[Timed]:
        """Without timing, correctness is also checked on small workloads of odd sizes."""
        alive = [arm for arm in self.arms if arm.is_ok]
        for edge in self.workload.problem.edges():
            sizes = edge.model_dump(exclude={"dtype"})
            relative = Workload(operation=self.workload.operation, dtype=edge.dtype, sizes=sizes)
            for arm in alive:
                self._check_edge(arm, relative)
        return [Timed(Group(MAIN, "verify", ()), alive)]

    def _check_edge(self, arm: Arm, relative: Workload) -> None:
        """Checks one arm on one small workload. "Unsupported" there is not a failure."""
        label, session = relative.problem.label(), self.context.session
        self.context.progress.step(self.workload, arm.name, f"verify {label}")
        trial = arm_of(self.context.device, relative, arm.name)
        session.open(relative)
        if trial.is_ok:
            got: Verified | None = session.attempt(
                trial, "verify", self.plan.compile_limit_s, seed=self.rng.of_inputs(), thorough=True
            )
            if got is not None:
                trial.judged(judge([got.reading], relative.dtype))
        edges = arm.correctness.setdefault("edges", {})
        edges[label] = "right" if trial.is_ok else f"{trial.status}: {trial.why}"
        if trial.status not in (Status.OK, Status.UNSUPPORTED) and arm.is_ok:
            arm.correctness["correct"] = False
            arm.fail(trial.status, f"at {label}: {trial.why}", trial.log)

    # --- the event ------------------------------------------------------------------------------------------------

    def _event(self, timed: Timed, members: list[Arm]) -> Measured:
        reading, baseline = timed.reading, self.context.spec.baseline
        if reading is not None and baseline not in reading.blocks:
            baseline = members[0].name
            reading.notes.append(f"the baseline {self.context.spec.baseline} has no time here; {baseline} replaces it")
        limits = Limits(
            self.workload.problem,
            self.context.environment["device"],
            self.context.l2_bytes,
            self.context.ceilings if self.context.is_cuda else None,
        )
        results = [arm_result(arm, reading, baseline, limits, self.seed) for arm in self.arms if arm in members]
        if base := next((one for one in results if one.kernel == baseline and one.status != Status.OK), None):
            results = [without_ratio(one) for one in results]
            if reading is not None:
                reading.notes.append(f"the baseline {baseline} is {base.status}: nothing is compared with it")
        shared: dict[str, Any] = json_safe(reading_fields(reading, baseline))
        shared["protocol"] = shared.get("protocol", {}) | {"seed": self.seed}
        return Measured(
            workload=self.workload,
            mode=timed.group.mode,
            group=timed.group.name,
            baseline=baseline,
            took_s=round(time.monotonic() - self.began, 3),
            telemetry=self.context.telemetry.summary(),
            results=results,
            **shared,
        )
