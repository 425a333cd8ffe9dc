"""What the samples of a result are: calls, replays of a graph, or batches."""

from __future__ import annotations

from kernels.contract.arm_result import ArmResult
from kernels.contract.events import Measured


def calls_of(m: Measured, arm: ArmResult) -> int | None:
    """Timed calls: a sample of a graph is a replay, which has a call on each set of inputs; of an isolated measurement
    it is a batch."""
    if m.isolation and arm.kernel in m.isolation.batches:
        return arm.n and arm.n * m.isolation.batches[arm.kernel].calls
    return arm.n and arm.n * ((m.protocol.sets or 1) if m.mode == "graph" else 1)


def over(m: Measured, arm: ArmResult) -> str:
    """What p50, mean, std, min and max are over: "400 calls", "100 replays of 8 calls each"; empty without samples."""
    if not arm.n:
        return ""
    each = (calls_of(m, arm) or arm.n) // arm.n
    name = "replays" if m.mode == "graph" else "batches" if each > 1 else ""
    return f"{arm.n:,} {name} of {each:,} call{'s' * (each > 1)} each" if name else f"{arm.n:,} calls"


def over_single(m: Measured, arm: ArmResult) -> str:
    """The same of p90, p95 and p99, which are of single calls if these were timed beside a graph."""
    return f"{arm.cold.n:,} single calls on cold inputs" if arm.cold else over(m, arm)
