"""Profiles kernels: first the timeline, then the counters. Nothing is measured meanwhile: the device is locked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from kernels.contract.arm_result import Status
from kernels.contract.profile import Profile, Timeline
from kernels.parent.arm import arm_of
from kernels.parent.seeds import secret
from kernels.profiling import ncu
from kernels.profiling.ask import MOST_SAID, Ask, answer_of
from kernels.profiling.process import Launcher
from kernels.workload import Choice, Workload

LIMIT_S = 180.0
"""Of each profiled process, if no other is asked for: a new process compiles again."""
MOST_SEED = 2**31


def profiles(
    launcher: Launcher,
    choice: Choice,
    wanted: Callable[[Workload, str], bool] = lambda workload, kernel: True,
    before: Callable[[Workload, str], None] = lambda workload, kernel: None,
) -> Iterator[Profile]:
    """Profiles each kernel on each workload. before: called before each."""
    for workload in choice.workloads:
        for kernel in choice.kernels_of(workload.operation):
            if wanted(workload, kernel) and not launcher.should_stop():
                before(workload, kernel)
                yield profile(launcher, workload, kernel)


def profile(launcher: Launcher, workload: Workload, kernel: str) -> Profile:
    """One kernel on one workload."""
    arm = arm_of(launcher.device, workload, kernel)
    known = {"key": workload.key, "kernel": kernel, "sha256": arm.facts.get("sha256", "")}
    if arm.status != Status.OK:
        why = f"It cannot run here: {arm.why}."
        unsupported = arm.status == Status.UNSUPPORTED
        return Profile(**known, unsupported=unsupported, counters_missing=why, timeline_missing=why)
    seed = secret() % MOST_SEED
    ask = Ask(what="timeline", device=launcher.device.kind, workload=workload, kernel=kernel, seed=seed)
    timeline, why = _timeline(launcher, ask, arm.environment)
    if timeline is None:
        return Profile(**known, timeline_missing=why, counters_missing=why)
    counters, missing = ncu.counters(launcher, ask.model_copy(update={"what": "counters"}), arm.environment)
    return Profile(**known, timeline=timeline, counters=counters, counters_missing=missing)


def _timeline(launcher: Launcher, ask: Ask, environment: dict[str, str]) -> tuple[Timeline | None, str]:
    """(the timeline; why there is none, as a sentence)."""
    ended = launcher.run([sys.executable, "-m", "kernels.profiling.target", ask.model_dump_json()], environment)
    answer = answer_of(ended.output)
    if ended.why:
        return None, f"There is no timeline: {ended.why}."
    if answer is None:
        return None, f"There is no timeline: the process ended with status {ended.status}."
    if answer.failed is not None:
        return None, f"The kernel failed while it was profiled: {answer.failed[:MOST_SAID]}"
    return answer.timeline, "" if answer.timeline else "The process gave no timeline."
