"""Another look at every arm, in a process of its own, after all timing: profilers disturb launches. Parent side.

The names of the kernels that really ran, the profiler's span against the events' time, the parent's own clock around a
batch, and the energy that the batch took.
"""

from __future__ import annotations

import time
from contextlib import suppress
from statistics import median
from typing import TYPE_CHECKING, Any

from kernels.analysis.blocks import Estimate, is_host_bound
from kernels.parent.child_process import Child, ChildDied, ChildTimedOut, CommandFailed
from kernels.parent.workload_run import VERIFY_LIMIT_S, arm_of

if TYPE_CHECKING:
    from kernels.parent.supervisor import Supervisor

BATCH_NS = {"cuda": 300e6, "cpu": 30e6}
MAX_BATCH = 100_000
FIRST_GATE_NS = 2_000_000
PROFILE_LIMIT_S = 300.0
"""A new process compiles again, and a profiler's first use alone takes seconds."""
NOT_AGAIN = ("crashed", "timed out", "suspect", "unsupported")
"""Arms of these statuses are not run beside others any more."""
AGREE_SHARE, AGREE_NS = 0.05, 5_000
"""Span and event time agree within the larger of the two,"""
AGREE_NS_PER_KERNEL = 1_500
"""and so much for each kernel of a call after its first: the profiler makes each a little longer."""
LEAST_ENERGY_S = 0.2
"""NVML counts energy in steps of up to 0.1 s: a shorter batch would read chance."""


def crosscheck(run: Supervisor) -> dict[str, Any]:
    """{"seen": [{"key", "kernel", "ran", "check"}, ...]} of every arm of a run that can be run again."""
    run.retire_child()
    seen: list[dict[str, Any]] = []
    for run.position, workload in enumerate(run.spec.workloads):
        opened: Child | None = None
        for name in run.spec.kernels:
            status = run.standing.get((workload.key, name), "")
            if status in NOT_AGAIN or arm_of(run, workload, name).status != "ok":
                continue
            run.step(name, "cross-check", workload)
            try:
                child = run.ensure_child()
                if opened is not child:
                    child.call("open", workload=workload.model_dump())
                    opened = child
                seen.append({"key": workload.key, "kernel": name} | _look(run, child, name, status))
            except (CommandFailed, ChildDied, ChildTimedOut):
                opened = None  # it failed before and has its result; or it will show as not cross-checked
    return {"seen": seen}


def _look(run: Supervisor, child: Child, name: str, status: str) -> dict[str, Any]:
    if status != "ok" or run.spec.protocol.verify_only:
        return {"ran": child.call("profile", PROFILE_LIMIT_S, arm=name, seed=1)["kernels"]}
    batch = _batch(run, child, name)  # before the profiler: it stays attached
    profile = child.call("profile", PROFILE_LIMIT_S, arm=name, seed=1)
    event_ns = median(profile["event_ns"])
    span_ns = median(profile["spans_ns"]) if profile["spans_ns"] else None
    check = {"event_ns": event_ns, "span_ns": span_ns, "agrees": agrees(event_ns, span_ns, len(profile["kernels"]))}
    return {"ran": profile["kernels"], "check": check | batch}


def agrees(event_ns: float, span_ns: float | None, kernels: int = 1) -> bool | None:
    """Whether two clocks say the same of a call of so many kernels; None if one says nothing."""
    if span_ns is None:
        return None
    return abs(span_ns - event_ns) <= max(AGREE_SHARE * event_ns, AGREE_NS) + AGREE_NS_PER_KERNEL * max(0, kernels - 1)


def _batch(run: Supervisor, child: Child, name: str) -> dict[str, Any]:
    """{"calls", "wall_ns", "joules", "host_bound"}: host time and board energy per call, of a batch without a pause.

    By a graph where the host might not launch single calls as fast as they run; host_bound: it might not, and there is no
    graph, so that the host's time may be the host's own.
    """
    cuda = run.device.kind == "cuda"
    child.call("prepare", PROFILE_LIMIT_S, seeds=list(range(1, 257)), rotate=cuda)
    block = child.call("block", PROFILE_LIMIT_S, arm=name, calls=5, gate_ns=FIRST_GATE_NS if cuda else 0)
    call_ns, nodes = min(block["ticks_ns"]), 1
    host_bound = cuda and is_host_bound(Estimate(call_ns, block["enqueue_ns"] / 5))
    if host_bound:
        with suppress(CommandFailed):  # what cannot be captured is called
            nodes = child.call("capture", VERIFY_LIMIT_S, arm=name)["nodes"]
            host_bound = False
    calls = nodes * max(1, min(MAX_BATCH, round(BATCH_NS[run.device.kind] / call_ns)) // nodes)
    energy, begin = run.telemetry.energy_j(), time.monotonic_ns()
    child.call("sustained", VERIFY_LIMIT_S, arm=name, calls=calls, lead=0, chunks=1)
    wall_ns, after = time.monotonic_ns() - begin, run.telemetry.energy_j()
    child.call("release")
    known = energy is not None and after is not None and wall_ns >= LEAST_ENERGY_S * 1e9
    joules = (after - energy) / calls if known else None  # type: ignore[operator]
    return {"calls": calls, "wall_ns": wall_ns / calls, "joules": joules, "host_bound": host_bound}
