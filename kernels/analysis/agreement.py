"""Whether two clocks say the same of one call: the events' time, and the profiler's span of its kernels."""

from __future__ import annotations

AGREE_SHARE, AGREE_NS = 0.05, 5_000
"""Span and event time agree within the larger of these two,"""
AGREE_NS_PER_KERNEL = 1_500
"""plus this for each kernel of a call after its first: the profiler makes each a little longer."""


def agrees(event_ns: float, span_ns: float | None, kernels: int = 1) -> bool | None:
    """None if one clock says nothing. kernels: of the call."""
    if span_ns is None:
        return None
    return abs(span_ns - event_ns) <= max(AGREE_SHARE * event_ns, AGREE_NS) + AGREE_NS_PER_KERNEL * max(0, kernels - 1)
