"""One workload of an isolated run: every arm has a process of its own, and this process times its batches."""

from __future__ import annotations

from statistics import median, quantiles
from typing import Any

from kernels import catalog
from kernels.analysis.blocks import Estimate
from kernels.analysis.isolation import Host, host_half_width, is_slower_beside, why_too_short, with_host
from kernels.analysis.statistics import unpaired_speedup
from kernels.contract.arm_result import NO_SPEEDUP, ArmResult, Ratio, Status
from kernels.contract.events import MAIN, Measured
from kernels.contract.isolation import Batches, Isolation
from kernels.host.airlock import Facts
from kernels.parent import rounds
from kernels.parent.arm import Arm
from kernels.parent.batches import checked_calls
from kernels.parent.checking import drawn_again
from kernels.parent.child_process import ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.drive import AA, Drive, kernel_of
from kernels.parent.engine import Timed
from kernels.parent.groups import Group
from kernels.parent.isolated_session import LIMIT_S, VERIFY_CALLS, IsolatedSession
from kernels.parent.problem_session import ProblemFailed
from kernels.parent.problem_tests import has_tests, outcomes, tell
from kernels.parent.reading import Reading, joined, of_one_baseline
from kernels.parent.session import ERROR_TAIL
from kernels.parent.slot import Slot
from kernels.parent.workload_run import WorkloadRun
from kernels.settings import spelled, with_table

MODE = "batch"
BEFORE = 8
"""Batches of the baseline before any other kernel has a process, and again after they have ended."""
EMPTY = 16
"""Empty batches."""
BASELINE_AGAIN = 2
"""So often the baseline may fail in rounds, all processes of a workload together, before it has failed."""


class IsolatedRun(WorkloadRun):
    """Measures one workload with a cell for each arm."""

    def measure(self) -> list[Measured]:
        """One event: all arms take turns in the same rounds."""
        context = self.context
        context.session.replace()  # it holds memory of the device
        self._on_its_tests()
        self.session = IsolatedSession(
            context.device, self.workload, context.session.should_stop, self.plan.rest, len(self._alive()) + 1,
            context.session.stopwatch, independent=self.plan.processes > 1, quick=self.plan.is_wide,
        )  # fmt: skip
        self.call_ns: dict[str, float] = {}
        self.facts = Facts()
        self.before: list[int] = []
        """Times of the baseline before any other kernel had a process (ns)."""
        self.empty: list[int] = []
        self.beside: Ratio | None = None
        self.baseline_failed = 0
        self.batches: dict[str, Batches] = {}
        try:
            return [self._isolated_event(self._measured())]
        finally:
            self.session.close()

    def _on_its_tests(self) -> None:
        """Checks the kernels on the tests that came with a problem, once a run: what is wrong there is on every workload."""
        known, alive = self.context.on_tests, self._alive()
        if not alive or not has_tests(self.workload):
            return
        if untried := [arm.name for arm in alive if arm.name not in known]:
            say = self.context.progress.step
            known |= outcomes(
                self.context,
                self.workload,
                untried,
                lambda name: say(self.workload, name, "verify its problem's tests"),
            )
        self.part.told += sorted({known[arm.name].why for arm in alive if known[arm.name].is_ok} - {""})
        for arm in alive:
            tell(known[arm.name], arm)

    def _alive(self) -> list[Arm]:
        return [arm for arm in self.arms if arm.is_ok]

    def _measured(self) -> Reading | None:
        """The reading; none if the problem that came with its kernels cannot be measured: no kernel is to blame then."""
        try:
            if self.session.why_no_problem:
                raise ProblemFailed(self.session.why_no_problem)
            return self._measure()
        except ProblemFailed as error:
            for arm in self._alive():
                arm.fail(Status.FAILED, str(error), self.session.source_log(ERROR_TAIL))
            return None

    def _measure(self) -> Reading | None:
        """The baseline alone; then all arms in turn; if one fails meanwhile, the others again without it."""
        by_name = {arm.name: arm for arm in self.arms}
        if self.baseline in by_name and by_name[self.baseline].is_ok:
            self._begin(by_name[self.baseline])
        for arm in self.arms:
            if arm.is_ok and arm.name != self.baseline:
                self._begin(arm)
        readings: list[Reading] = []
        while (alive := self._alive()) and not self.plan.verify_only:
            try:
                reading = self._rounds(alive)
                self._recheck(alive, reading)
                disturbing = self._disturbed(reading)
            except (CommandFailed, ChildDied, ChildTimedOut) as error:
                for slot, one in [(self.session.turn, error), *self.session.capturing.failed_too]:
                    self._failed(by_name[kernel_of(slot)], one)
                self.session.capturing.failed_too.clear()
                continue
            for arm in disturbing:
                arm.fail(Status.SUSPECT, "the baseline is slower while the process of this kernel exists")
            if not disturbing:
                readings.append(reading)
                if len(readings) == self.plan.processes:
                    break
                for name in list(self.session.slots):  # the next readings come from new processes
                    self.session.stop(name)
        return joined(of_one_baseline(readings, self.baseline)) if readings else None

    def _failed(self, arm: Arm, error: Exception) -> None:
        """What failed in the rounds: a kernel leaves them, the baseline is started again."""
        if arm.name == self.baseline and self.baseline_failed < BASELINE_AGAIN:
            self._again_after(error)
        elif arm.is_ok:
            self._blame(arm, "timing", error)

    def _again_after(self, error: Exception) -> None:
        """Ends all cells after a failure of the baseline, which was right and timed before: all are started anew. A busy host may
        be the reason, and without a baseline nothing is decided."""
        self.baseline_failed += 1
        self.part.told.append(f"a process of the baseline failed and was started again: {error}")
        for name in list(self.session.slots):
            self.session.stop(name)

    # --- one arm: start, check, estimate --------------------------------------------------------------------------------

    def _begin(self, arm: Arm) -> None:
        """Starts the cell of an arm, checks it, and estimates its time. The baseline is also timed alone."""
        try:
            if arm.name == self.baseline and not self.plan.verify_only:
                self._check_beside(arm)
            else:
                self._check(arm, self._start(arm.name))
            if not arm.is_ok or self.plan.verify_only:
                for name in (arm.name, arm.name + AA):
                    self.session.stop(name)
                return
            self._step(arm, "estimate")
            self._estimate(arm)
            if arm.name == self.baseline:
                self._step(arm, "alone")
                self.empty = self.session.empty_batches(arm.name, EMPTY)
                self.session.host_ns = median(self.empty)
                self.before = self._alone()
        except (CommandFailed, ChildDied, ChildTimedOut) as error:
            self._blame(arm, "in its own process", error)

    def _check_beside(self, arm: Arm) -> None:
        """Checks the baseline while its second cell, for A/A, makes its first calls. If the check fails, e.g. because there is no
        memory for both at once, it is made again, alone. If the second cell fails, it is started again before the rounds."""
        slot, other = self._start(arm.name), arm.name + AA
        self._start(other)
        try:
            self.session.warm(other)
            self._check(arm, slot)
        except (CommandFailed, ChildDied, ChildTimedOut):
            self.session.stop(other)
            self._check(arm, self._start(arm.name))
            return
        self.session.warmed(other, self.plan.compile_limit_s)

    def _start(self, name: str) -> Slot:
        slot = self.session.start(name)
        self.facts = slot.cell.facts
        return slot

    def _check(self, arm: Arm, slot: Slot) -> None:
        self._step(arm, "compile")
        info = catalog.get_kernel(self.workload.operation, arm.name)
        decides, device = catalog.decides_of(info), self.context.device
        with open(info.path, "rb") as file:  # what the cell says of its source is not believed
            source = with_table(file.read(), decides.whole_table)
        settings, tuned = decides.chosen(self.workload.key, device.name, device.capability)
        arm.facts |= {"source": source.decode("utf-8", "replace"), "sha256": info.sha256}
        arm.facts |= {"settings": spelled(settings or {}), "tuned": tuned}
        readings = []
        for number, check in enumerate(self._checks()):
            limit_s = self.plan.compile_limit_s if number == 0 else LIMIT_S
            seed = self.session.fresh_seed()
            reading, took_s = self.session.verify(arm.name, limit_s, seed, check.distribution, check.thorough)
            readings.append(reading)
            if number == 0:
                arm.facts["compile_s"] = took_s
            self._step(arm, f"verify {number + 1} of {self.plan.verify_seeds}")
        verdict = self._judge(arm.name, readings, slot.flags)
        if self.plan.verify_only and verdict["correct"] is not False:  # else timed batches show it
            calls = checked_calls(took_s / VERIFY_CALLS, self.session.room)
            again = self.session.batch_on(arm.name, calls, self.session.fresh_seed(), ["normal"])
            readings += [] if slot.shared else again  # its values may be those of a later call: that is said then
            verdict = self._judge(arm.name, readings, slot.flags)
        arm.judged(verdict)
        if arm.name in self.context.on_tests:
            tell(self.context.on_tests[arm.name], arm)
        self._say_own_check(arm, slot)

    def _say_own_check(self, arm: Arm, slot: Slot) -> None:
        if self.session.source:
            arm.correctness["own_check"] = self.session.source.own_check(slot.refused)
            if arm.correctness["correct"] is None and (why := self.session.source.described.why_inexact):
                arm.correctness["why"] = f"its reference has no exact answer: {why}"

    def _estimate(self, arm: Arm) -> None:
        """On a GPU batches are captured graphs, if the baseline can be captured; a kernel that cannot is left out."""
        session = self.session
        if arm.name == self.baseline and self.context.is_cuda:
            session.graphs = True
            try:
                self.call_ns[arm.name] = session.estimate(arm.name, LIMIT_S)
                return
            except CommandFailed:
                session.graphs = False
                self._again(arm.name)
        try:
            self.call_ns[arm.name] = session.estimate(arm.name, LIMIT_S)
        except CommandFailed as error:
            if not session.graphs or error.fault.kind in ("suspect", "unsupported"):
                raise
            self.session.stop(arm.name)
            arm.fail(Status.UNSUPPORTED, f"cannot be captured as a CUDA graph, as the baseline is here: {error}")

    def _alone(self, batches: int = BEFORE) -> list[int]:
        """Times of a call of the baseline (ns), one per batch."""
        self.session.turn = self.baseline
        calls = self.session.calls_for(self.call_ns[self.baseline])
        return [round(self.session.block(self.baseline, calls, is_judged=False)) for _ in range(batches)]

    def _blame(self, arm: Arm, doing: str, error: Exception) -> None:
        slot = self.session.slots.get(arm.name)
        arm.blame(doing, error, slot.cell.log.tail(ERROR_TAIL) if slot else "")
        for name in (arm.name, arm.name + AA):
            self.session.stop(name)

    def _step(self, arm: Arm, text: str) -> None:
        self.context.progress.step(self.workload, arm.name, text)

    # --- all arms in turn -----------------------------------------------------------------------------------------------

    def _again(self, name: str) -> None:
        """Starts the cell of an arm that was checked before."""
        self.session.turn = name
        self._start(name)
        self._first(name)

    def _first(self, name: str) -> None:
        """Calls the kernel of a cell for the first time, or the first time that its outputs are looked at."""
        self.session.turn = name
        self.session.verify(name, self.plan.compile_limit_s, self.session.fresh_seed())

    def _rounds(self, alive: list[Arm]) -> Reading:
        session, telemetry = self.session, self.context.telemetry
        names = [arm.name for arm in alive]
        base = self.baseline if self.baseline in names else names[0]
        for name in [*names, base + AA]:
            if name not in session.slots:
                self._again(name)
            elif not session.slots[name].layout:
                self._first(name)
            session.slots[name].clear()
        drive = Drive(
            session, names, base, self.plan, session.rng.randrange(2**31), self._on_step,
            telemetry.sm_mhz, telemetry.slowed, telemetry.load.look, self.context.progress.saw,
        )  # fmt: skip
        estimates = {name: Estimate(self.call_ns[name], 0.0) for name in names}
        paired = rounds.Paired(drive, MODE, estimates, cuda=False)
        paired.calls = {name: session.calls_for(self.call_ns[kernel_of(name)]) for name in paired.calls}
        session.capturing.together = lambda: {name: paired.calls[name] for name in paired.active}
        telemetry.load.begin()
        try:
            reading = paired.measure()
        finally:
            session.capturing.together = dict
        reading.host = telemetry.load.end()
        reading.rest, reading.sets = session.rest, max(paired.calls.values())
        return reading

    def _on_step(self, name: str, text: str) -> None:
        self.session.turn = name
        if text:
            self.context.progress.step(self.workload, kernel_of(name), text)

    def _recheck(self, alive: list[Arm], reading: Reading) -> None:
        """Judges the outputs of timed calls, those of further batches on other distributions, and the length of batches."""
        kinds = drawn_again(self._checks())
        for arm in alive:
            slot = self.session.slots[arm.name]
            self.session.turn = arm.name
            calls = reading.calls[arm.name]
            others = self.session.batch_on(arm.name, calls, self.session.fresh_seed(), kinds) if kinds else []
            verdict = self._judge(arm.name, [*slot.readings, *others], slot.flags)
            arm.correctness["timed_calls_checked"] = len(slot.readings)
            self._say_own_check(arm, slot)
            arm.rechecked = verdict
            if verdict["correct"] is False:
                arm.correctness |= {"correct": False, "why": f"in timed calls: {verdict['why']}"}
                arm.fail(Status.INCORRECT, f"correct when checked alone, wrong when timed: {verdict['why']}")
            self.batches[arm.name] = slot.batches(calls)

    # --- the baseline beside the others, and alone ------------------------------------------------------------------------

    def _disturbed(self, reading: Reading) -> list[Arm]:
        """Kernels beside which the baseline takes longer than alone."""
        beside = reading.blocks.get(self.baseline)
        if not self.before or not beside:
            return []
        times = [round(ticks[0]) for ticks in beside]
        self.beside = _ratio(times, self.before)
        if not is_slower_beside(self.beside):
            return []
        others = [arm for arm in self._alive() if arm.name != self.baseline]
        for arm in others:
            self.session.stop(arm.name)
        if not is_slower_beside(_ratio(times, self._alone())):
            reading.notes.append("the baseline stayed slower after the processes of the other kernels had ended")
            return []
        guilty = [arm for arm in others if self._disturbs(arm)]
        if not guilty:
            reading.notes.append(f"the baseline took {self.beside.ratio:.3f} times as long as alone, but only once")
        return guilty

    def _disturbs(self, arm: Arm) -> bool:
        """Whether the baseline takes longer beside this kernel than before and after it."""
        before, calls = self._alone(), self.session.calls_for(self.call_ns[arm.name])
        self._again(arm.name)
        times = []
        for _ in range(BEFORE):
            self.session.turn = arm.name
            self.session.batch(arm.name, calls)
            times += self._alone(batches=1)
        self.session.stop(arm.name)
        return is_slower_beside(_ratio(times, before)) and is_slower_beside(_ratio(times, self._alone()))

    # --- the event ------------------------------------------------------------------------------------------------------

    def _isolated_event(self, reading: Reading | None) -> Measured:
        timed = Timed(Group(MAIN, MODE if reading else "verify", ()), self._alive(), reading)
        event = self._event(timed, sorted(self.arms, key=lambda arm: not arm.is_ok))
        host = self._host()
        facts = Isolation(
            **self.facts.model_dump(exclude={"pid"}),
            on_cpu=not self.context.is_cuda,
            graphs=self.session.graphs,
            host_us=host and round(host.ns / 1e3, 1),
            host_spread_us=host and round(host.spread_ns / 1e3, 1),
            host_subtracted=host is not None,
            beside=self.beside,
            seed=self.session.seed,
            batches=self.batches,
        )
        by_name = {arm.kernel: arm for arm in event.results}
        results = [self._without_single_calls(arm, by_name.get(event.baseline), host) for arm in event.results]
        return event.model_copy(update={"isolated": True, "isolation": facts, "results": results})

    def _host(self) -> Host | None:
        if not self.empty:
            return None
        low, _, high = quantiles(self.empty, n=4)
        return Host(self.session.host_ns, high - low)

    def _without_single_calls(self, arm: ArmResult, base: ArmResult | None, host: Host | None) -> ArmResult:
        """A result whose samples are batches: it has no percentiles of calls; its interval includes what the host may add,
        and it has no speedup if batches are too short."""
        changes: dict[str, Any] = dict.fromkeys(("p75_ms", "p90_ms", "p95_ms", "p99_ms"))
        if arm.ratio and base and arm.p50_ms and base.p50_ms and host:
            calls_ns = (arm.p50_ms * 1e6, base.p50_ms * 1e6)
            batches_ns = (self.batches[arm.kernel].ms * 1e6, self.batches[base.kernel].ms * 1e6)
            if why := why_too_short(calls_ns, batches_ns, host, self.context.is_cuda, self.session.graphs):
                changes |= {"why": why} | NO_SPEEDUP
            else:
                half = host_half_width(calls_ns, batches_ns, host, self.session.graphs)
                whole = with_host(arm.ratio, half)
                changes |= {"speedup_low": whole.low, "speedup_high": whole.high, "host_half_width": half}
        return arm.model_copy(update=changes)


def _ratio(times: list[int], before: list[int]) -> Ratio:
    return Ratio(*unpaired_speedup(times, before, seed=0))
