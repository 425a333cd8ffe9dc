"""What an isolated measurement can tell: pure functions."""

from __future__ import annotations

from kernels.contract.arm_result import Ratio, Verdict

HOST_SHARE = 0.01
"""An empty batch may be this share of a batch: it pulls every ratio towards 1 by less."""
LEAST_LAUNCH_NS, LEAST_CALL_NS = 50e3, 10e3
"""Shortest calls, launched one by one: on a GPU the host must keep up; on a CPU the loop around a call counts."""
BESIDE_TOLERANCE = 0.03
"""The baseline's time beside other kernels may differ this much from its time alone."""


def why_too_short(call_ns: float, batch_ns: float, host_ns: float, cuda: bool, graphs: bool) -> str:
    """Why batches of a kernel are too short to be told apart; empty if they are not."""
    if host_ns > HOST_SHARE * batch_ns:
        return (
            f"{Verdict.TOO_SHORT}: the host takes {host_ns / 1e3:.0f} us of a batch of {batch_ns / 1e6:.3g} ms; more "
            "calls, each with inputs of its own, do not fit"
        )
    least_ns = LEAST_LAUNCH_NS if cuda else LEAST_CALL_NS
    if not graphs and call_ns < least_ns:
        return f"{Verdict.TOO_SHORT}: calls that are launched one by one must take at least {least_ns / 1e3:.0f} us"
    return ""


def is_slower_beside(ratio: Ratio) -> bool:
    """Whether the baseline took longer beside other kernels: its time beside them over its time alone."""
    return ratio.low > 1 + BESIDE_TOLERANCE
