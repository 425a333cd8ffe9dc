"""Agreement of event time and profiler span."""

from __future__ import annotations

AGREE_SHARE, AGREE_NS = 0.05, 5_000
"""They agree within the larger of these two,"""
AGREE_NS_PER_KERNEL = 1_500
"""plus this for each further kernel of a call: the profiler lengthens each a little."""


def agrees(event_ns: float, span_ns: float | None, kernels: int = 1) -> bool | None:
    """None if one of the two is missing. kernels: number of kernels in the call."""
    if span_ns is None:
        return None
    return abs(span_ns - event_ns) <= max(AGREE_SHARE * event_ns, AGREE_NS) + AGREE_NS_PER_KERNEL * max(0, kernels - 1)
