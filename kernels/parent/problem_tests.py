"""The tests that came with a problem: kernels are checked on them before anything is timed.

All tests are one call, which calls the kernel once for each of them: so one session of their own checks all kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kernels.analysis.correctness import REFUSED, judge
from kernels.catalog import PROBLEM, TESTS, get_kernel
from kernels.contract.arm_result import Status
from kernels.contract.isolation import Part
from kernels.parent.arm import Arm, arm_of
from kernels.parent.child_process import ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.context import RunContext
from kernels.parent.isolated_session import IsolatedSession
from kernels.parent.problem_session import ProblemFailed
from kernels.parent.session import ERROR_TAIL
from kernels.parent.slot import Slot
from kernels.workload import Workload

RIGHT, UNKNOWN = "right", "not judged: its reference has no exact answer"


def has_tests(workload: Workload) -> bool:
    """Whether the problem of a workload came with tests."""
    return workload.operation == PROBLEM and TESTS in get_kernel(PROBLEM, workload.sizes[PROBLEM]).limits.get(
        "case", ()
    )


def outcomes(
    context: RunContext, workload: Workload, kernels: list[str], on_step: Callable[[str], None]
) -> dict[str, Arm]:
    """How each kernel does on the tests. If they cannot be made, each is ok and says why. on_step: is told the kernel."""
    tests = Workload(operation=PROBLEM, dtype=workload.dtype, sizes=workload.sizes | {"case": TESTS})
    found = {name: arm_of(context.device, tests, name) for name in kernels}
    alive = [arm for arm in found.values() if arm.is_ok]
    session = IsolatedSession(
        context.device, tests, context.session.should_stop, context.spec.protocol.rest, len(alive),
        context.session.stopwatch,
    )  # fmt: skip
    try:
        if session.why_no_problem:
            raise ProblemFailed(session.why_no_problem)
        for arm in alive:
            on_step(arm.name)
            _check(arm, session, context.spec.protocol.compile_limit_s)
    except ProblemFailed as error:
        found = {name: Arm(name, why=f"the tests of its problem were not checked: {error}") for name in kernels}
    finally:
        session.close()
    return found


def _check(arm: Arm, session: IsolatedSession, limit_s: float) -> None:
    try:
        slot = session.start(arm.name)
        reading, _ = session.verify(arm.name, limit_s, session.fresh_seed(), thorough=True)
        assert session.source
        arm.judged(_judged(reading, session.source.described.parts, session.workload.dtype, slot))
    except (CommandFailed, ChildDied, ChildTimedOut) as error:
        log = session.slots[arm.name].cell.log.tail(ERROR_TAIL) if arm.name in session.slots else ""
        arm.blame("in its own process", error, log)
        arm.why = f"on the tests of its problem: {arm.why}"
    finally:
        session.stop(arm.name)


def _judged(reading: dict[str, Any], parts: list[Part], dtype: str, slot: Slot) -> dict[str, Any]:
    """The judgement of all tests, with what was said of each: "edges"."""
    whole = judge([reading], dtype, slot.flags)
    if reading.get("wrong_kind"):
        return whole | {"why": f"on the tests of its problem: {whole['why']}"}
    said: dict[str, str] = {}
    for part, readings in zip(parts, _of_each(reading.get("outputs", [reading]), parts), strict=True):
        found = judge(readings, dtype)
        said[part.name] = f"wrong: {found['why']}" if found["why"] else RIGHT if found["correct"] else UNKNOWN
    if slot.refused:
        whole["why"] = f"{REFUSED} of its test {slot.refused}"
    elif wrong := next((name for name, word in said.items() if word.startswith("wrong")), ""):
        whole["why"] = f"on the problem's test {wrong}: {said[wrong].removeprefix('wrong: ')}"
    elif whole["why"]:
        whole["why"] = f"on the tests of its problem: {whole['why']}"
    return whole | {"edges": said}


def _of_each(readings: list[dict[str, Any]], parts: list[Part]) -> Iterable[list[dict[str, Any]]]:
    """The readings of each test's outputs, numbered within it."""
    rest = iter(readings)
    for part in parts:
        mine = [next(rest) for _ in range(part.outputs)]
        plain = [{name: value for name, value in one.items() if name not in ("output", "of")} for one in mine]
        several = [one | {"output": number, "of": len(mine)} for number, one in enumerate(plain, 1)]
        yield several if len(mine) > 1 else plain


def tell(trial: Arm, arm: Arm) -> None:
    """Lets an arm of a workload know how it did on the tests. "Unsupported" there is not a failure."""
    if edges := trial.correctness.get("edges"):
        arm.correctness["edges"] = edges
    if trial.status not in (Status.OK, Status.UNSUPPORTED):
        if trial.status == Status.INCORRECT:
            arm.correctness |= {"correct": False, "why": trial.why}
        arm.fail(trial.status, trial.why, trial.log)
