"""A first estimate of each arm: call time, host time of a launch, and whether it synchronises with the device."""

from __future__ import annotations

from kernels.analysis.blocks import MAX_GATE_NS, Estimate
from kernels.contract.replies import TimedBlock
from kernels.parent.drive import CALL_LIMIT_S, Drive, prepare


def estimate(drive: Drive, cuda: bool) -> dict[str, Estimate]:
    """Five calls of each arm; the minimum counts. On CUDA also the cost of a launch, and whether the arm synchronises.

    In a new process, as after a crash, an arm compiles at its first call.
    """
    estimates, first_limit = {}, max(CALL_LIMIT_S, drive.plan.compile_limit_s)
    prepare(drive)
    for arm in drive.arms:
        drive.on_step(arm, "estimate")
        block: TimedBlock = drive.call(arm, "block", first_limit, calls=5)
        guess = Estimate(min(block.ticks_ns), block.enqueue_ns / 5)
        if cuda:
            gate = min(MAX_GATE_NS, int(4 * block.enqueue_ns) + 1_000_000)
            for _ in range(2):  # a single host delay is not a synchronisation
                block = drive.call(arm, "block", calls=5, gate_ns=gate)
                if block.gated:
                    break
            guess = Estimate(min(block.ticks_ns), block.enqueue_ns / 5, synchronises=not block.gated)
        estimates[arm] = guess
    return estimates
