"""What an isolated measurement can tell: pure functions."""

from __future__ import annotations

import math
from typing import NamedTuple

from kernels.analysis.verdicts import is_noisy
from kernels.contract.arm_result import Ratio, Verdict

HOST_SHARE = 0.25
"""What the host adds may be this share of a batch; it is subtracted."""
PER_CALL_NS = 200.0
"""What a call of a captured graph may cost the host beyond an empty batch: as much as isolated ratios differed from the
shared process for calls of 10 to 100 us (docs/measurements/isolated-twelve-h200-2026-11-23.jsonl)."""
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


def host_half_width(call_ns: tuple[float, float], batch_ns: tuple[float, float], host: Host, graphs: bool) -> float:
    """How far a ratio may be off because of what the host adds to batches, on the log scale.

    call_ns, batch_ns: of the kernel and of the baseline. A batch may be shorter or longer than it seems by the spread of
    empty batches. Batches of one length change alike, and their ratio does not. Graphs may cost the host more, call by call.
    """
    of_batches = host.spread_ns * abs(1 / batch_ns[0] - 1 / batch_ns[1])
    return math.log1p(math.hypot(of_batches, PER_CALL_NS / min(call_ns) if graphs else 0.0))


def why_too_short(
    call_ns: tuple[float, float], batch_ns: tuple[float, float], host: Host, cuda: bool, graphs: bool
) -> str:
    """Why batches are too short to tell a kernel from its baseline; empty if they are not. Arguments as above."""
    if host.ns > HOST_SHARE * min(batch_ns) or is_noisy(host_half_width(call_ns, batch_ns, host, graphs)):
        return (
            f"{Verdict.TOO_SHORT}: the host adds {host.ns / 1e3:.0f} us (spread {host.spread_ns / 1e3:.0f} us) to "
            f"batches of {batch_ns[0] / 1e6:.3g} and {batch_ns[1] / 1e6:.3g} ms; a longer batch "
            "is not possible, because each of its calls needs inputs of its own"
        )
    least_ns = LEAST_CALL_NS if not cuda else LEAST_GRAPH_NS if graphs else LEAST_LAUNCH_NS
    if min(call_ns) < least_ns:
        how = "" if graphs else " that are launched one by one"
        return f"{Verdict.TOO_SHORT}: calls{how} must take at least {least_ns / 1e3:.0f} us"
    return ""


def with_host(ratio: Ratio, half_width: float) -> Ratio:
    """The ratio, and both sides of its interval with this half-width in quadrature, on the log scale."""
    below, above = (math.hypot(math.log(end / ratio.ratio), half_width) for end in (ratio.low, ratio.high))
    return Ratio(ratio.ratio, ratio.ratio * math.exp(-below), ratio.ratio * math.exp(above))


def is_slower_beside(ratio: Ratio) -> bool:
    """Whether the baseline took longer beside other kernels: its time beside them over its time alone."""
    return ratio.low > 1 + BESIDE_TOLERANCE
