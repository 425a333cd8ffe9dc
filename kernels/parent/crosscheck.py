"""Cross-check in a new process after all timing (profilers disturb launches): kernel names, profiler span, host clock,
energy."""

from __future__ import annotations

import time
from contextlib import suppress
from statistics import median
from typing import Any

from kernels.analysis.agreement import agrees
from kernels.analysis.blocks import Estimate, is_host_bound
from kernels.contract.arm_result import CrossCheck, Status
from kernels.contract.events import CrossChecked, Seen
from kernels.contract.replies import Profiled, TimedBlock
from kernels.parent.arm import arm_of
from kernels.parent.child_process import ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.context import RunContext
from kernels.parent.drive import MOST_SETS
from kernels.parent.engine import VERIFY_LIMIT_S
from kernels.parent.results import json_safe
from kernels.parent.seeds import secret
from kernels.parent.workload_run import Statuses
from kernels.workload import Workload

BATCH_NS = {"cuda": 300e6, "cpu": 30e6}
MAX_BATCH = 100_000
FIRST_GATE_NS = 2_000_000
PROFILE_LIMIT_S = 300.0
"""A new process compiles again; a profiler's first use alone takes seconds."""
NOT_AGAIN = (Status.CRASHED, Status.TIMED_OUT, Status.SUSPECT, Status.UNSUPPORTED, Status.OUT_OF_MEMORY)
"""Arms with these statuses are not run again."""
LEAST_ENERGY_S = 0.2
"""Shortest batch for an energy figure: NVML counts in steps of up to 0.1 s."""


def crosscheck(context: RunContext, statuses: Statuses) -> CrossChecked:
    """Cross-checks every arm that can run again, in a new process."""
    seen: list[Seen] = []
    for context.progress.position, workload in enumerate(context.spec.workloads):
        afresh = False
        names = context.spec.kernels_of(workload.operation)
        for name in [name for name in names if _can_run(context, workload, name, statuses)]:
            context.progress.step(workload, name, "cross-check")
            try:
                context.session.use(arm_of(context.device, workload, name).environment)
                context.session.open(workload, afresh)
                found = _seen_fields(context, name, timed=_is_timed(context, statuses.get((workload.key, name))))
                seen.append(Seen(key=workload.key, kernel=name, **json_safe(found)))
                afresh = False
            except (CommandFailed, ChildDied, ChildTimedOut):
                afresh = True  # no cross-check of this kernel; the next one gets a clean bench
    return CrossChecked(seen=seen)


def _is_timed(context: RunContext, status: Status | None) -> bool:
    return status == Status.OK and not context.spec.protocol.verify_only


def _can_run(context: RunContext, workload: Workload, name: str, statuses: Statuses) -> bool:
    return statuses.get((workload.key, name)) not in NOT_AGAIN and arm_of(context.device, workload, name).is_ok


def _seen_fields(context: RunContext, name: str, timed: bool) -> dict[str, Any]:
    """The fields of a Seen."""
    if not timed:
        return {"ran": _profile(context, name).kernels}
    batch = _batch(context, name)  # before the profiler, which stays attached
    profile = _profile(context, name)
    event_ns = median(profile.event_ns)
    span_ns = median(profile.spans_ns) if profile.spans_ns else None
    agree = agrees(event_ns, span_ns, len(profile.kernels))
    check = CrossCheck(event_ns=event_ns, span_ns=span_ns, agrees=agree, **batch)
    return {"ran": profile.kernels, "check": check}


def _profile(context: RunContext, name: str) -> Profiled:
    profiled: Profiled = context.session.call("profile", PROFILE_LIMIT_S, arm=name, seed=secret())
    return profiled


def _batch(context: RunContext, name: str) -> dict[str, Any]:
    """The fields of a CrossCheck from a batch without rests: host time and board energy per call.

    The batch is a graph if the host might launch single calls more slowly than they run. `host_bound`: it might, and
    there is no graph: `wall_ns` may be host time.
    """
    cuda, session, telemetry = context.is_cuda, context.session, context.telemetry
    seeds = [secret() for _ in range(MOST_SETS)]
    session.call("prepare", PROFILE_LIMIT_S, seeds=seeds, sets=0 if cuda else 1)
    block: TimedBlock = session.call("block", PROFILE_LIMIT_S, arm=name, calls=5, gate_ns=FIRST_GATE_NS if cuda else 0)
    call_ns, nodes = min(block.ticks_ns), 1
    host_bound = cuda and is_host_bound(Estimate(call_ns, block.enqueue_ns / 5))
    if host_bound:
        with suppress(CommandFailed):  # if it cannot be captured, call it
            nodes = session.call("capture", VERIFY_LIMIT_S, arm=name).nodes
            host_bound = False
    calls = nodes * max(1, min(MAX_BATCH, round(BATCH_NS[context.device.kind] / call_ns)) // nodes)
    energy, begin = telemetry.energy_j(), time.monotonic_ns()
    session.call("sustained", VERIFY_LIMIT_S, arm=name, calls=calls, lead=0, chunks=1, seed=secret())
    wall_ns, after = time.monotonic_ns() - begin, telemetry.energy_j()
    session.call("release")
    known = energy is not None and after is not None and wall_ns >= LEAST_ENERGY_S * 1e9
    joules = (after - energy) / calls if known else None  # type: ignore[operator]
    return {"calls": calls, "wall_ns": wall_ns / calls, "joules": joules, "host_bound": host_bound}
