"""What an isolated measurement can tell: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import quantiles

from kernels.contract.arm_result import Ratio, Verdict

HOST_SHARE, HOST_ERROR = 0.05, 0.001
"""An empty batch may be this share of a batch. It is subtracted; its standard error may be this share of a batch."""
LEAST_LAUNCH_NS, LEAST_CALL_NS = 50e3, 10e3
"""Shortest calls, launched one by one: on a GPU the host must keep up; on a CPU the loop around a call counts."""
BESIDE_TOLERANCE = 0.03
"""The baseline's time beside other kernels may differ this much from its time alone."""


def host_error(empty: Sequence[int]) -> float:
    """Standard error of the median of empty batches (ns), from their interquartile range as for a normal distribution."""
    low, _, high = quantiles(empty, n=4)
    return 1.2533 * (high - low) / 1.349 / sqrt(len(empty))


def why_too_short(call_ns: float, batch_ns: float, empty: tuple[float, float], cuda: bool, graphs: bool) -> str:
    """Why batches of a kernel are too short to be told apart; empty if they are not. empty: what the host adds to a
    batch, and its standard error (ns)."""
    host_ns, error_ns = empty
    if host_ns > HOST_SHARE * batch_ns or error_ns > HOST_ERROR * batch_ns:
        return (
            f"{Verdict.TOO_SHORT}: the host adds {host_ns / 1e3:.0f} us (standard error {error_ns / 1e3:.0f} us) to a "
            f"batch of {batch_ns / 1e6:.3g} ms; more calls, each with inputs of its own, do not fit"
        )
    least_ns = LEAST_LAUNCH_NS if cuda else LEAST_CALL_NS
    if not graphs and call_ns < least_ns:
        return f"{Verdict.TOO_SHORT}: calls that are launched one by one must take at least {least_ns / 1e3:.0f} us"
    return ""


def is_slower_beside(ratio: Ratio) -> bool:
    """Whether the baseline took longer beside other kernels: its time beside them over its time alone."""
    return ratio.low > 1 + BESIDE_TOLERANCE
