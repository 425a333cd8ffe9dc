"""The protocol `fixed`: W warm-up calls, then N timed calls, one arm after the other, as older suites do. Parent side."""

from __future__ import annotations

from kernels.analysis.blocks import MAX_CALLS
from kernels.contract.replies import TimedBlock
from kernels.parent.drive import CALL_LIMIT_S, Drive, prepare
from kernels.parent.reading import Reading


def fixed(drive: Drive, cuda: bool) -> Reading:
    """W warm-up calls, then N timed calls, one arm after the other, on one buffer, with an event pair per call."""
    plan = drive.plan
    mode = "cpu" if not cuda else "cold" if plan.flush_l2 else "warm"
    prepare(drive)
    reading = Reading(mode, paired=False, flushed=plan.flush_l2 and cuda)
    reading.notes.append("protocol fixed: one kernel after the other; drift and difference cannot be separated")
    for arm in drive.arms:
        drive.on_step(arm, "warm-up")
        limit = CALL_LIMIT_S + 0.5 * (plan.warmup + plan.iters)
        for first in range(0, plan.warmup, MAX_CALLS):
            drive.call(arm, "block", limit, calls=min(MAX_CALLS, plan.warmup - first))
        drive.on_step(arm, f"{plan.iters} calls")
        ticks: list[float] = []
        for first in range(0, plan.iters, MAX_CALLS):
            calls = min(MAX_CALLS, plan.iters - first)
            asked = {"calls": calls, "flush": reading.flushed, "seeds": [drive.fresh_seed()], "early": True}
            got: TimedBlock = drive.call(arm, "block", limit, **asked)
            reading.note_between(arm, got)
            ticks += got.ticks_ns
            drive.call(arm, "keep", limit, position=drive.rng.randrange(calls), seed=drive.fresh_seed())
        reading.blocks[arm] = [[tick] for tick in ticks]
        reading.calls[arm] = 1
    return reading
