"""What an isolated measurement can tell: pure functions."""

from __future__ import annotations

from typing import NamedTuple

from kernels.contract.arm_result import Ratio, Verdict

HOST_SHARE, HOST_ERROR = 0.05, 0.001
"""What the host adds may be this share of a batch; it is subtracted. What is wrong with that may change a ratio by this share."""
LEAST_GRAPH_NS, LEAST_LAUNCH_NS, LEAST_CALL_NS = 10e3, 50e3, 10e3
"""Shortest calls. In a graph: below that, ratios differ by over 2% from the shared process
(docs/measurements/isolated-twelve-h200-2026-11-23.jsonl). Launched one by one: the host must keep up. On a CPU: the loop
around them counts."""
BESIDE_TOLERANCE = 0.03
"""The baseline's time beside other kernels may differ this much from its time alone."""


class Host(NamedTuple):
    """What the host adds to every batch (ns)."""

    ns: float
    """Median of empty batches."""
    spread_ns: float
    """Their interquartile range."""


def why_too_short(
    call_ns: tuple[float, float], batch_ns: tuple[float, float], host: Host, cuda: bool, graphs: bool
) -> str:
    """Why batches are too short to tell a kernel from its baseline; empty if they are not.

    call_ns, batch_ns: of the kernel and of the baseline. A batch may be this much shorter or longer than it seems: the
    spread of empty batches. Batches of one length change alike, and their ratio does not.
    """
    error = host.spread_ns * abs(1 / batch_ns[0] - 1 / batch_ns[1])
    if host.ns > HOST_SHARE * min(batch_ns) or error > HOST_ERROR:
        return (
            f"{Verdict.TOO_SHORT}: the host adds {host.ns / 1e3:.0f} us, give or take {host.spread_ns / 1e3:.0f} us, to "
            f"batches of {batch_ns[0] / 1e6:.3g} and {batch_ns[1] / 1e6:.3g} ms; more calls, each with inputs of its own, "
            "do not fit"
        )
    least_ns = LEAST_CALL_NS if not cuda else LEAST_GRAPH_NS if graphs else LEAST_LAUNCH_NS
    if min(call_ns) < least_ns:
        how = "" if graphs else " that are launched one by one"
        return f"{Verdict.TOO_SHORT}: calls{how} must take at least {least_ns / 1e3:.0f} us"
    return ""


def is_slower_beside(ratio: Ratio) -> bool:
    """Whether the baseline took longer beside other kernels: its time beside them over its time alone."""
    return ratio.low > 1 + BESIDE_TOLERANCE
